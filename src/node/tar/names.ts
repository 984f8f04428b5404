import { TarError } from "./format.ts";

const SLASH = 0x2f;

/**
 * The parts of a name that comes out of a sandbox, of which each character is a byte; none for the tree's own
 * directory. Every name of a sandbox passes here before it is used on this machine or written into an archive. Throws
 * TarError for one that is absolute, climbs with "..", or has a NUL.
 */
export function partsOf(name: Buffer): string[] {
  const parts = withoutNul(name).toString("latin1").split("/");
  if (name[0] === SLASH || parts.includes("..")) throw climbs(name);
  return parts.filter((part) => part !== "" && part !== ".");
}

/** An empty part, "." or "..", also at either end; or a NUL. */
const UNCLEAN = /(?:^|\/)\.{0,2}(?:\/|$)|\0/;

/** Whether a name is one that `partsOf` takes, and has neither empty parts nor ".": as an agent sends it. */
export function isCleanName(name: Buffer): boolean {
  return !UNCLEAN.test(name.toString("latin1"));
}

/** The same bytes. Throws TarError for a NUL, which Node would refuse with an error that is not a system call's. */
export function withoutNul(name: Buffer): Buffer {
  if (name.includes(0))
    throw new TarError(`the sandbox's answer has the name ${JSON.stringify(name.toString())}, with a NUL`);
  return name;
}

/** The error for a name that would be outside of the directory that is copied. */
export function climbs(name: Buffer): TarError {
  return new TarError(
    `the sandbox's answer has the name ${JSON.stringify(name.toString())}, which leads out of the directory`,
  );
}
