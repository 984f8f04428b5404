import { tableText } from "../../src/node/guestctl/output.ts";

/** How one case went. */
type Verdict = "ok" | "FAILED" | "skipped" | "-";

/** The cases that one client ran over one transport. */
export interface Row {
  readonly transport: string;
  readonly client: string;
  readonly verdicts: Map<string, Verdict>;
  durationMs: number;
}

/** Results as lines of text: a row for each transport and client, a column for each case; `-`: not to be run. */
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
  return tableText(cells);
}
