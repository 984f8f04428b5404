/** Writes the list of the runtime dependencies' licences: `npm run licences`. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runScript, words } from "./machine/script.ts";

/** Path of the list in the project. */
export const LICENCE_FILE = "THIRD_PARTY_LICENSES.md";

/** Licences that only require that their text is included. A package with any other licence needs a decision first. */
const ACCEPTED: ReadonlySet<string> = new Set(["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"]);

/**
 * This package is a development dependency, but the bundle of guestctl contains its API. The dependencies with which it
 * builds images are not bundled.
 */
const BUNDLED = "node_modules/@onkernel/hypeman";

interface LockedPackage {
  readonly version: string;
  readonly license?: string;
  readonly dev?: boolean;
}

const HEADING = `# Licences of the packages that the agent and guestctl run with

Made by \`npm run licences\` from package-lock.json; checked by \`npm run check\`. The text of each licence comes with its
package in node_modules. Node itself brings further components; they are listed in the LICENSE file of its package.

| package | version | licence |
| --- | --- | --- |
`;

/** Returns the list as Markdown. Throws if a package names no licence, or a licence that is not accepted. */
export function licenceTable(root: string): string {
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  const rows = Object.entries(lock.packages)
    .filter(([path, { dev }]) => path === BUNDLED || (path !== "" && dev !== true))
    .map(([path, { version, license = "" }]) => {
      const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
      const unknown = license.split(/ AND |[()]/).filter((part) => part !== "" && !ACCEPTED.has(part));
      if (license === "" || unknown.length > 0)
        throw new Error(`${name} has the licence "${license}": not accepted yet`);
      return `| ${name} | ${version} | ${license} |\n`;
    });
  return HEADING + [...new Set(rows)].toSorted().join("");
}

if (import.meta.main) {
  await runScript("licences", "usage: npm run licences", () => {
    words(0);
    const root = join(import.meta.dirname, "..");
    writeFileSync(join(root, LICENCE_FILE), licenceTable(root));
    return Promise.resolve(0);
  });
}
