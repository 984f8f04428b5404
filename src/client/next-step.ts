/** What there is to go by. */
interface Failure {
  readonly status: string;
  readonly message: string;
  readonly reason?: string | undefined;
}

const BY_REASON: Readonly<Record<string, string>> = {
  SHUTTING_DOWN: "the sandbox is going away: nothing to do here",
  TOO_MANY_EXECS: "wait until a command has ended",
  CHECKSUM_MISMATCH: "the content changed on its way or at its source: write it again",
  SIZE_MISMATCH: "the content changed at its source: write it again",
};

/** What to do about a failed call; undefined where its message says it all. */
export function nextStepFor({ status, reason, message }: Failure): string | undefined {
  if (status === "UNAUTHENTICATED") return "give the token of this very instance; it changes with a restore";
  if (status === "UNIMPLEMENTED") return "update the agent, or do without; it may be that of an old snapshot";
  if (reason !== undefined) return BY_REASON[reason];
  if (status === "DEADLINE_EXCEEDED") return "check that the agent runs, or give the call more time";
  return status === "UNAVAILABLE" ? connectionStep(message) : undefined;
}

function connectionStep(message: string): string {
  if (/bridge command/.test(message)) return "run the bridge command by hand: it must wait for input, silently";
  if (/altname/i.test(message)) return "give the name in the agent's certificate as serverName";
  if (/certificate has expired/i.test(message)) return "renew the agent's certificate, or look at this host's clock";
  if (/certificate is not yet valid/i.test(message))
    return "look at this host's clock: the agent's certificate begins later";
  if (/certificate/i.test(message)) return "give the authority that issued the agent's certificate as caPem";
  if (/SSL|wrong version/i.test(message)) return "what listens there is no guest agent; check the address";
  if (/dropped|ECONNRESET/.test(message)) return "the connection broke: look whether the call has taken effect";
  if (/closed before it was ready/.test(message)) return "check that the agent takes this client certificate";
  return "check that the agent runs and that the address is right";
}
