import { UsageError } from "../errors.ts";

/** What a copy command line asks for. */
export interface CopyOrder {
  readonly direction: "upload" | "download" | "tar in" | "tar out";
  /** Paths without the prefix of the sandbox; at least one, and no more for an archive. */
  readonly sources: readonly string[];
  readonly destination: string;
}

/** Marks a path in the sandbox. */
const PREFIX = ":";
/** Standard input or output, as a tar archive. */
const STREAM = "-";

/** Reads `SOURCE... DESTINATION`, where paths in the sandbox begin with a colon. Throws UsageError. */
export function parseOrder(paths: readonly string[]): CopyOrder {
  const destination = paths.at(-1);
  const sources = paths.slice(0, -1);
  if (destination === undefined || sources.length === 0) throw new UsageError("cp wants a source and a destination");
  const isRemote = (path: string): boolean => path.startsWith(PREFIX);
  const remote = sources.filter(isRemote).length;
  if (destination === STREAM || sources.includes(STREAM)) return parseStream(sources, destination);
  if (isRemote(destination) && remote === 0) {
    return { direction: "upload", sources, destination: remotePath(destination) };
  }
  if (!isRemote(destination) && remote === sources.length) {
    return { direction: "download", sources: sources.map(remotePath), destination };
  }
  throw new UsageError("cp copies either to or from the sandbox, whose paths begin with a colon, as in :/etc/hosts");
}

/** `:PATH -` and `- :PATH`, as docker has them. */
function parseStream(sources: readonly string[], destination: string): CopyOrder {
  const [source = "", ...more] = sources;
  if (more.length === 0 && destination === STREAM && source.startsWith(PREFIX)) {
    return { direction: "tar out", sources: [remotePath(source)], destination };
  }
  if (more.length === 0 && source === STREAM && destination.startsWith(PREFIX)) {
    return { direction: "tar in", sources, destination: remotePath(destination) };
  }
  throw new UsageError("- is a tar archive, either of one path, as in :/srv -, or for one folder, as in - :/srv");
}

function remotePath(argument: string): string {
  const path = argument.slice(PREFIX.length);
  if (!path.startsWith("/")) throw new UsageError(`${argument} is relative; a path in the sandbox is absolute`);
  return path;
}
