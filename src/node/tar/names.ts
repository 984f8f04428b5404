import { TarError } from "./format.ts";

const SLASH = 0x2f;

/**
 * Splits a name from a sandbox into its parts, as latin1 strings, which keep every byte; the root directory itself has
 * no parts. Every name from a sandbox must be checked by this function before it is used on this machine or written to
 * an archive. Throws TarError if the name is absolute, contains "..", or has a NUL.
 */
export function partsOf(name: Buffer): string[] {
  const parts = withoutNul(name).toString("latin1").split("/");
  if (name[0] === SLASH || parts.includes("..")) throw climbs(name);
  return parts.filter((part) => part !== "" && part !== ".");
}

/** Matches a name with a NUL, or with an empty part, "." or ".." at any position. */
const UNCLEAN = /(?:^|\/)\.{0,2}(?:\/|$)|\0/;

/**
 * Whether the name has the form in which the agent sends names: relative, without a NUL, and without an empty part, "."
 * or "..".
 */
export function isCleanName(name: Buffer): boolean {
  return !UNCLEAN.test(name.toString("latin1"));
}

/**
 * Returns the name unchanged. Throws TarError if the name has a NUL. Node would also reject such a name, but with
 * ERR_INVALID_ARG_VALUE instead of an errno.
 */
export function withoutNul(name: Buffer): Buffer {
  if (name.includes(0))
    throw new TarError(`the sandbox's answer has the name ${JSON.stringify(name.toString())}, which contains a NUL`);
  return name;
}

/** Creates the error for a name that would be outside of the copied directory. */
export function climbs(name: Buffer): TarError {
  return new TarError(
    `the sandbox's answer has the name ${JSON.stringify(name.toString())}, which leads out of the directory`,
  );
}
