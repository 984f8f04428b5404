import { constants } from "node:os";

const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.errno)
    .filter(([name]) => name !== "EWOULDBLOCK" && name !== "EOPNOTSUPP")
    .map(([name, number]) => [number, name]),
);

/** Name of an errno, positive or negated: "ENOENT" for both 2 and -2. */
export function errnoName(errno: number): string {
  return NAMES.get(Math.abs(errno)) ?? `E${Math.abs(errno)}`;
}

/** Name of the errno in a result; undefined if the result is not negative. */
export function errnoIn(result: number): string | undefined {
  return result < 0 ? errnoName(result) : undefined;
}

/** Name of the errno of a failed Node call. Derived from the number, because libuv lacks some names (EDQUOT). */
export function failedWith(error: unknown): string | undefined {
  const errno = error instanceof Error && "errno" in error ? error.errno : undefined;
  return typeof errno === "number" ? errnoName(errno) : undefined;
}
