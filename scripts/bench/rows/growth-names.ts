const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** What is done more and more of: commands at the same time, or bytes in one transfer. */
const GROWING_LOADS = ["execs", "read", "stdout", "stdin"] as const;

/** A load that grows. */
export type GrowingLoad = (typeof GROWING_LOADS)[number];

/** One of the sizes that a growing load is measured at. */
export interface GrowthStep {
  readonly load: GrowingLoad;
  /** Commands at once, or bytes. */
  readonly size: number;
}

/** A size as rows name it. */
export function sizeText({ load, size }: GrowthStep): string {
  if (load === "execs") return String(size);
  return size >= GIB ? `${size / GIB} GiB` : `${size / MIB} MiB`;
}

/** What the rows of a step begin with. */
export function nameOfStep(step: GrowthStep): string {
  return step.load === "execs" ? `${sizeText(step)} execs at once` : `${step.load} of ${sizeText(step)}`;
}

/** What a row's name says, if it is one about growth. */
export function readGrowthName(name: string): (GrowthStep & { readonly figure: string }) | undefined {
  const [, execs, data, amount, unit, figure = ""] =
    /^(?:(\d+) execs at once|(\w+) of ([\d.]+) ([MG])iB): (.+)$/.exec(name) ?? [];
  if (execs !== undefined) return { load: "execs", size: Number(execs), figure };
  const load = GROWING_LOADS.find((known) => known === data);
  return load && { load, size: Number(amount) * (unit === "G" ? GIB : MIB), figure };
}
