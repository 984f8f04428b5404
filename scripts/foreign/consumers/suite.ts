import { mkdtempDisposable, readFile } from "node:fs/promises";
import { spawnSync } from "node:child_process";
import { closeSync, globSync, openSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { installClient, machineNode } from "../../../test/fixtures/client-package.ts";
import { Cases } from "../cases.ts";
import { type Failure, type Suite, Unavailable } from "../suite.ts";
import { compile, type Compiler, consumers } from "./programs.ts";
import { provideTools, VERSIONS } from "./tools.ts";

const OWN = join(import.meta.dirname, "../../../node_modules/.bin/tsc");
/** The packed client library: publint, arethetypeswrong, and strict programs of three compilers. */
export const CONSUMERS: Suite = {
  name: "consumers",
  about: "the packed client library by publint and arethetypeswrong; programs of TypeScript 5.4, 5.9 and 7",
  cases: 43,
  differences: {},
  run: async () => {
    const machine = machineNode();
    if (typeof machine === "string") throw new Unavailable(machine);
    const tools = await provideTools(machine.path);
    await using folder = await mkdtempDisposable(join(tmpdir(), "consumers-"));
    const program = (await installClient(folder.path, machine.path)).folder;
    const [tarball = ""] = globSync("*.tgz", { cwd: program });
    const cases = new Cases();
    await cases.check("publint has nothing to say", async () => {
      const words = [join(tools, "publint/src/cli.js"), tarball, "--strict"];
      const { stdout, exitCode } = await execa(machine.node, words, { cwd: program, reject: false });
      if (exitCode !== 0 || !stdout.includes("All good!")) throw new Error(stdout);
    });
    const wrong = await typesWrong(machine.node, tools, join(program, tarball));
    const compilers: readonly Compiler[] = [
      { name: "TypeScript 5.4", tsc: join(tools, "typescript-5.4/bin/tsc"), knowsNode10: true },
      { name: "TypeScript 5.9", tsc: join(tools, "typescript-5.9/bin/tsc"), knowsNode10: true },
      { name: "TypeScript 7", tsc: OWN, knowsNode10: false },
    ];
    for (const each of consumers(compilers)) await compile(program, each, cases);
    return {
      version: VERSIONS,
      cases: cases.count + wrong.cases,
      failures: [...wrong.failures, ...cases.failures],
    };
  },
};

interface Analysis {
  readonly analysis: { readonly entrypoints: Readonly<Record<string, { readonly resolutions: object }>> };
  readonly problems: Readonly<
    Record<string, readonly { readonly kind: string; readonly entrypoint?: string; readonly resolutionKind?: string }[]>
  >;
}

/** A case for each entry and each way to resolve it; one with a problem has failed. */
async function typesWrong(
  node: string,
  tools: string,
  tarball: string,
): Promise<{ cases: number; failures: readonly Failure[] }> {
  const words = [join(tools, "@arethetypeswrong/cli/dist/index.js"), tarball, "--format", "json"];
  // Into a file: attw ends before a pipe has taken all.
  const report = `${tarball}.json`;
  const descriptor = openSync(report, "w");
  spawnSync(node, words, { stdio: ["ignore", descriptor, "ignore"] });
  closeSync(descriptor);
  const { analysis, problems } = JSON.parse(await readFile(report, "utf8")) as Analysis;
  const cases = Object.values(analysis.entrypoints).flatMap(({ resolutions }) => Object.keys(resolutions)).length;
  const failures = Object.values(problems)
    .flat()
    .map(({ kind, entrypoint = "the package", resolutionKind = "all" }) => ({
      name: `attw: ${kind} of ${entrypoint} by ${resolutionKind}`,
      problem: "see its page on problems",
    }));
  return { cases, failures };
}
