import type { BootstrapFault } from "./faults.ts";
import { BOOTSTRAP_VARIABLES, type BootstrapVariable } from "./variables.ts";

/** Values of the bootstrap variables that are set. */
export type BootstrapValues = ReadonlyMap<BootstrapVariable, string>;

/** Picks the bootstrap channel out of raw `NAME=value` entries. A variable with a fault is left out of the values. */
export function readVariables(environ: readonly Uint8Array[]): { values: BootstrapValues; faults: BootstrapFault[] } {
  const values = new Map<BootstrapVariable, string>();
  const faults: BootstrapFault[] = [];
  for (const variable of BOOTSTRAP_VARIABLES) {
    const [raw, ...more] = rawValues(environ, variable);
    if (raw === undefined) continue;
    const value = decode(raw);
    const problem =
      more.length > 0
        ? "is set more than once; set it once"
        : value === undefined
          ? "is not valid UTF-8"
          : value === ""
            ? "is empty; give it a value or leave it out"
            : undefined;
    if (problem !== undefined) faults.push({ variable, problem });
    else if (value !== undefined) values.set(variable, value);
  }
  return { values, faults };
}

function rawValues(environ: readonly Uint8Array[], variable: BootstrapVariable): Buffer[] {
  const head = Buffer.from(`${variable}=`);
  return environ
    .map((entry) => Buffer.from(entry.buffer, entry.byteOffset, entry.byteLength))
    .filter((entry) => entry.subarray(0, head.length).equals(head))
    .map((entry) => entry.subarray(head.length));
}

function decode(raw: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
  } catch {
    return undefined;
  }
}
