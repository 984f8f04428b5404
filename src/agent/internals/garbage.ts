type Kind = "major" | "minor";
type Collect = (options: { type: Kind; execution: "sync"; flavor?: "last-resort" }) => void;

/**
 * Returns a function that collects garbage: all of it ("major"), or only that of the young generation ("minor"). The
 * function calls V8's `gc`, which exists only in contexts that were created while the flag --expose-gc was set. If V8
 * lacks `gc`, the function does nothing. A collection followed by malloc_trim(3) reduces the idle agent's memory after
 * an upload from 21 to 14 MiB (decision 0013).
 *
 * @param name the name of V8's function `gc`
 */
export function garbageCollector(name = "gc"): (kind: Kind) => void {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8");
  const { runInNewContext } = process.getBuiltinModule("node:vm");
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext(`globalThis.${name}`) as Collect | undefined;
  setFlagsFromString("--no-expose-gc");
  return (type) => collect?.({ type, execution: "sync", ...(type === "major" && { flavor: "last-resort" }) });
}
