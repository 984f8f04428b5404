/**
 * Flags of the agent's Node. They save memory (a small young generation, one thread of V8's instead of four idle ones)
 * and keep SIGUSR1 from starting a debugger. They keep TLS from parsing a hundred public authorities at its first use:
 * the agent trusts only those it is given. The launcher points OpenSSL's own store, which --use-openssl-ca names, at an
 * empty file.
 */
export const NODE_FLAGS: readonly string[] = [
  "--max-semi-space-size=1",
  "--v8-pool-size=0",
  "--disable-sigusr1",
  "--use-openssl-ca",
];
