import { readFileSync } from "node:fs";
import { join } from "node:path";
import { licenceTable, LICENCE_FILE } from "../licences.ts";
import { type Check, repositoryFiles, ROOT } from "./tool.ts";

/** Names of one machine, which a repository must not have. */
const MACHINE_TRACES: readonly { readonly pattern: RegExp; readonly what: string }[] = [
  { pattern: /(?<![\w.$-])\/(?:root|Users\/[\w.-]+|home\/[\w.-]+)\/[\w.-]+/, what: "a path in someone's home" },
  {
    pattern: /\b(?:registry|mirror|artifactory|nexus|verdaccio)[\w-]*\.[\w-]+\.\w+/i,
    what: "a package registry's host",
  },
  { pattern: /"resolved": "https?:/, what: "a package registry's address" },
];

/** Finds traces of a machine, or this checkout's path, in a text. */
function machineTraces(file: string, text: string, checkout: string): string[] {
  return text.split("\n").flatMap((line, index) => {
    const found = MACHINE_TRACES.filter(({ pattern }) => pattern.test(line)).map(({ what }) => what);
    if (line.includes(`${checkout}/`)) found.push("the path of this checkout");
    return found.map((what) => `${file}:${index + 1} names ${what}`);
  });
}

async function noTraces(): Promise<string> {
  const files = (await repositoryFiles()).filter((file) => !file.includes("/gen/"));
  if (files.length < 50) return "found too few files: the search is broken";
  return files.flatMap((file) => machineTraces(file, readFileSync(join(ROOT, file), "utf8"), ROOT)).join("\n");
}

function licencesCurrent(): string {
  const current = readFileSync(join(ROOT, LICENCE_FILE), "utf8");
  return current === licenceTable(ROOT) ? "" : `${LICENCE_FILE} does not match package-lock.json: npm run licences`;
}

export const repositoryChecks: readonly Check[] = [
  { name: "no trace of a machine", readsRepository: true, run: noTraces },
  { name: "licences of dependencies", run: async () => licencesCurrent() },
];
