import { globSync, mkdtempDisposableSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { KEPT } from "../release/keep.ts";
import { type Check, complaintsOf, ROOT } from "./tool.ts";

/** Changes in a folder's schema that would break a client of any release; every released schema is kept. */
export async function incompatibilities(folder: string): Promise<string> {
  const snapshots = globSync(`compat/*/${KEPT.schema}`, { cwd: ROOT });
  if (snapshots.length === 0) return "no released schema in compat/";
  const complaints = await Promise.all(
    snapshots.map(async (snapshot) => {
      const complaint = await complaintsOf("buf", ["breaking", folder, "--against", join(ROOT, snapshot)]);
      return complaint && `against ${snapshot}:\n${complaint}`;
    }),
  );
  return complaints.filter(Boolean).join("\n");
}

const GENERATED = "src/shared/gen";

/** Generates the code into another folder and compares. */
async function generated(): Promise<string> {
  using folder = mkdtempDisposableSync(join(tmpdir(), "generated-"));
  const complaint = await complaintsOf("buf", ["generate", "-o", folder.path]);
  if (complaint !== "") return complaint;
  const differences = await complaintsOf("diff", ["-r", join(folder.path, GENERATED), GENERATED]);
  return differences && `${differences}\n${GENERATED} is not what the schema gives: npm run generate`;
}

export const schemaChecks: readonly Check[] = [
  { name: "schema lint", run: () => complaintsOf("buf", ["lint"]) },
  {
    name: "schema format (buf format -w mends it)",
    run: () => complaintsOf("buf", ["format", "--diff", "--exit-code"]),
  },
  { name: "schema compatibility", run: () => incompatibilities(ROOT) },
  { name: "generated code", run: generated },
];
