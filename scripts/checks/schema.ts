import { globSync, mkdtempDisposableSync, readFileSync } from "node:fs";
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

function filesUnder(folder: string): Map<string, string> {
  const names = globSync("**/*.ts", { cwd: folder });
  return new Map(names.map((name) => [name, readFileSync(join(folder, name), "utf8")]));
}

/** Generates the code into another folder and compares. */
async function generated(): Promise<string> {
  using folder = mkdtempDisposableSync(join(tmpdir(), "generated-"));
  const complaint = await complaintsOf("buf", ["generate", "-o", folder.path]);
  if (complaint !== "") return complaint;
  const fresh = filesUnder(join(folder.path, "src/shared/gen"));
  const committed = filesUnder(join(ROOT, "src/shared/gen"));
  if (fresh.size === 0) return "buf generate made no file: the comparison is broken";
  return [...new Set([...fresh.keys(), ...committed.keys()])]
    .filter((name) => fresh.get(name) !== committed.get(name))
    .map((name) => `src/shared/gen/${name} is not what the schema gives: npm run generate`)
    .join("\n");
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
