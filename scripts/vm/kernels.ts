import { newerSeries, provideKernel, SERIES } from "../../test/vm/harness/provision.ts";

/** Provides the kernels that guests boot, and a newer one where Debian has it; returns their series. */
export function prepareKernels(): string[] {
  for (const series of SERIES) provideKernel(series);
  const newer = newerSeries();
  if (newer === undefined) return [...SERIES];
  provideKernel(newer);
  return [...SERIES, newer];
}
