import { constants } from "node:os";

const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.errno)
    .filter(([name]) => name !== "EWOULDBLOCK" && name !== "EOPNOTSUPP")
    .map(([name, number]) => [number, name]),
);

/** Symbolic name of an errno, of either sign: 2 and -2 are "ENOENT". */
export function errnoName(errno: number): string {
  return NAMES.get(Math.abs(errno)) ?? `E${Math.abs(errno)}`;
}
