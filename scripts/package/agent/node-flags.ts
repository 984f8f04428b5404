/**
 * Flags that the agent's Node runs with: less memory (one small young generation, no extra V8 threads, which this program
 * gives no work), no debugger at SIGUSR1, and none of the hundred-odd public authorities that TLS would parse at its
 * first use: the agent trusts those it is given alone. The launcher points the store used instead at an empty file.
 */
export const NODE_FLAGS: readonly string[] = [
  "--max-semi-space-size=1",
  "--v8-pool-size=0",
  "--disable-sigusr1",
  "--use-openssl-ca",
];
