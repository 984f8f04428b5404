import type { Guest } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import { ask } from "../harness/oracle.ts";
import { serverHello } from "../harness/server-hello.ts";

const DRAW_LIMIT_MS = 90_000;

/** A guest's draws, all in hex. */
export interface Draws {
  /** From getrandom(2), one after the other. */
  readonly kernel: readonly string[];
  /** From the vDSO's getrandom; empty if the kernel has none. */
  readonly vdso: readonly string[];
  /** Random of the agent's next ServerHello. */
  readonly tlsRandom: string;
  /** Key share of that ServerHello. */
  readonly tlsKeyShare: string;
  /** Id of the next kept command. */
  readonly execId: string;
}

/** The kernel first: everything else makes it draw as well. */
export async function drawAll(guest: Guest, machine: Machine): Promise<Draws> {
  const [kernel = "", vdso = "none"] = await ask(machine.oraclePort, ["random", "vdso"], DRAW_LIMIT_MS, DRAW_LIMIT_MS);
  const hello = await serverHello(machine.agentPort);
  using client = guest.client(machine);
  const kept = client.exec({ args: ["/bin/busybox", "true"], keep: { name: "draw" } });
  const { execId } = await kept.attached;
  await client.endExec("draw", { forget: true });
  return {
    kernel: kernel.split(" "),
    vdso: vdso === "none" ? [] : vdso.split(" "),
    tlsRandom: hello.random,
    tlsKeyShare: hello.keyShare,
    execId,
  };
}

/**
 * Whether two guests draw from the same stream: some number came to both. Perhaps at different places, as any other
 * draw in between moves a guest along the stream.
 */
export function shareNumbers(one: readonly string[], other: readonly string[]): boolean {
  const seen = new Set(one);
  return other.some((number) => seen.has(number));
}

/** Whether both guests drew the same. */
export function drawTheSame(one: Draws, other: Draws): boolean {
  return (
    shareNumbers(one.kernel, other.kernel) &&
    (one.vdso.length === 0 || shareNumbers(one.vdso, other.vdso)) &&
    one.tlsRandom === other.tlsRandom &&
    one.tlsKeyShare === other.tlsKeyShare &&
    one.execId === other.execId
  );
}
