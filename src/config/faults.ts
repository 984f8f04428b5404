import type { BootstrapVariable } from "./variables.ts";

/** One thing that is wrong with the bootstrap channel. Neither part ever holds a value. */
export interface BootstrapFault {
  readonly variable: BootstrapVariable;
  /** Completes a sentence that begins with the variable's name, or "field: what is wrong with it". */
  readonly problem: string;
}

/** Everything that is wrong with the bootstrap channel, in the order of BOOTSTRAP_VARIABLES. */
export class BootstrapError extends Error {
  override readonly name = "BootstrapError";
  readonly faults: readonly BootstrapFault[];

  constructor(faults: readonly BootstrapFault[]) {
    super(faults.map(describeFault).join("\n"));
    this.faults = faults;
  }
}

/** One line for people, such as `SVC_GUEST_PORT: must be a number from 1 to 65535`. */
export function describeFault(fault: BootstrapFault): string {
  return `${fault.variable}: ${fault.problem}`;
}
