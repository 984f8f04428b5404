import { newerSeries, provideKernel, provideQemu, provideTools, SERIES } from "../../test/vm/harness/provision.ts";

/** Why there can be no guests on this machine; undefined when there can. Installs QEMU where possible. */
export function missing(): string | undefined {
  return provideQemu();
}

/** Provides everything that guests are made of; returns what to tell about it. */
export function prepareGuests(): string[] {
  provideTools();
  for (const series of SERIES) provideKernel(series);
  const newer = newerSeries();
  if (newer === undefined) return [`kernels: ${SERIES.join(", ")}; apt has no newer series`];
  provideKernel(newer);
  return [`kernels: ${[...SERIES, newer].join(", ")}`];
}
