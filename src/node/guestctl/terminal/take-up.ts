import type { GuestClient, KeptExec } from "../../client/index.ts";
import type { Connector } from "../target/index.ts";
import { runAttached } from "./attach.ts";
import { openKept, redraw } from "./kept.ts";
import { localSize } from "./terminal.ts";

/** How to attach to a kept command. */
export interface TakeUp {
  readonly exec: KeptExec;
  /** Only output from now on. Default: of a terminal in which something runs. */
  readonly fromNow?: boolean | undefined;
  /** Whether to connect standard input. Default: from a terminal to a terminal. */
  readonly isInteractive?: boolean | undefined;
  readonly escape: number | undefined;
  readonly isForPrograms: boolean;
}

/** Attaches to a kept command, in place of any attached client, until its end. Resolves with the exit status. */
export async function takeUp(
  { exec, fromNow, isInteractive, escape, isForPrograms }: TakeUp,
  client: GuestClient,
  connection: Connector,
  host: NodeJS.Process,
): Promise<number> {
  const { name, terminal: isTerminal, exit } = exec;
  const runsInTerminal = isTerminal && exit === undefined;
  const process = openKept({ name, isTerminal, isForPrograms }, connection, host, (options) =>
    client.attach(name, {
      ...options,
      fromNow: fromNow ?? runsInTerminal,
      execId: exec.execId,
      terminal: localSize(host),
    }),
  );
  // Only once attached: of two sizes sent earlier, the agent would see only the last.
  if (runsInTerminal) process.attached.then(() => redraw(process, host)).catch(() => undefined);
  const isAtTerminal = isTerminal && host.stdin.isTTY && !isForPrograms;
  return runAttached(
    { process, isInteractive: isInteractive ?? isAtTerminal, isTerminal, escape, kept: { name, process } },
    isForPrograms,
    host,
  );
}
