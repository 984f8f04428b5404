import { UsageError } from "../errors.ts";

/** What a copy command line asks for. */
export interface CopyOrder {
  readonly direction: "upload" | "download";
  /** Paths without the prefix of the sandbox; at least one. */
  readonly sources: readonly string[];
  readonly destination: string;
}

/** Marks a path in the sandbox. */
const PREFIX = ":";

/** Reads `SOURCE... DESTINATION`, where paths in the sandbox begin with a colon. Throws UsageError. */
export function parseOrder(paths: readonly string[]): CopyOrder {
  const destination = paths.at(-1);
  const sources = paths.slice(0, -1);
  if (destination === undefined || sources.length === 0) throw new UsageError("cp wants a source and a destination");
  const isRemote = (path: string): boolean => path.startsWith(PREFIX);
  const remote = sources.filter(isRemote).length;
  if (isRemote(destination) && remote === 0) {
    return { direction: "upload", sources, destination: remotePath(destination) };
  }
  if (!isRemote(destination) && remote === sources.length) {
    return { direction: "download", sources: sources.map(remotePath), destination };
  }
  throw new UsageError("cp copies either to or from the sandbox, whose paths begin with a colon, as in :/etc/hosts");
}

function remotePath(argument: string): string {
  const path = argument.slice(PREFIX.length);
  if (!path.startsWith("/")) throw new UsageError(`${argument} is relative; a path in the sandbox is absolute`);
  return path;
}
