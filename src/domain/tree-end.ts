import type { ChildProcess, ProcessEnd } from "./ports/index.ts";

/** How a child that could be killed has ended. */
export interface TreeEnd {
  readonly end: ProcessEnd;
  /** It did not end by itself: its whole tree was killed. */
  readonly killed: boolean;
}

/**
 * Resolves when the child has ended. When the signal is aborted before that, kills the child with its whole tree and
 * resolves when nothing of it is alive. What a child that ended by itself left in the background lives on.
 */
export async function endOrKill(child: ChildProcess, signal: AbortSignal): Promise<TreeEnd> {
  let killing: Promise<void> | undefined;
  const kill = (): void => {
    killing = child.killTree();
  };
  signal.addEventListener("abort", kill);
  if (signal.aborted) kill();
  const end = await child.ended;
  signal.removeEventListener("abort", kill);
  await killing;
  return { end, killed: killing !== undefined };
}
