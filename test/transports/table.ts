/** How one case went. */
type Verdict = "ok" | "FAILED" | "skipped" | "-";

/** The cases that one client ran over one transport. */
export interface Row {
  readonly transport: string;
  readonly client: string;
  readonly verdicts: Map<string, Verdict>;
  durationMs: number;
}

/** What ran, as lines of text: a row for each transport and client, a column for each case; `-`: not meant to run. */
export function table(rows: readonly Row[], cases: readonly string[]): string {
  const cells = [
    ["transport", "client", ...cases, "s"],
    ...rows.map(({ transport, client, verdicts, durationMs }) => [
      transport,
      client,
      ...cases.map((name) => verdicts.get(name) ?? "-"),
      (durationMs / 1000).toFixed(1),
    ]),
  ];
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0))) ?? [];
  return cells
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}
