import { join } from "node:path";
import { writeFile } from "node:fs/promises";
import { execa } from "execa";
import { messageOf } from "../../../src/shared/errors.ts";
import { cachedFolder } from "../../../test/fixtures/build-cache.ts";
import { Unavailable } from "../suite.ts";

/** By the names under which they are installed. TypeScript 7 is the project's own. */
const TOOLS: Readonly<Record<string, string>> = {
  publint: "0.3.25",
  "@arethetypeswrong/cli": "0.18.5",
  "typescript-5.4": "npm:typescript@5.4.5",
  "typescript-5.9": "npm:typescript@5.9.3",
};
const INSTALL_LIMIT_MS = 500_000;

/** Where they are installed, once. @throws Unavailable */
export async function provideTools(path: string): Promise<string> {
  const name = Object.values(TOOLS)
    .join("-")
    .replaceAll(/npm:|@/g, "-");
  const folder = await cachedFolder(`consumers-${name}`, async (target) => {
    await writeFile(join(target, "package.json"), JSON.stringify({ private: true, dependencies: TOOLS }));
    const quietly = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
    await execa("npm", ["install", ...quietly], {
      cwd: target,
      env: { PATH: path },
      timeout: INSTALL_LIMIT_MS,
    }).catch((error: unknown) => {
      throw new Unavailable(`npm did not install publint, attw and TypeScript: ${messageOf(error)}`);
    });
  });
  return join(folder, "node_modules");
}

/** Their versions. */
export const VERSIONS: string = ["publint", "@arethetypeswrong/cli"].map((name) => TOOLS[name]).join(", ");
