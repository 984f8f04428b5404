import { spawnSync } from "node:child_process";
import { closeSync, globSync, openSync } from "node:fs";
import { mkdtempDisposable, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { messageOf } from "../../../src/shared/errors.ts";
import { installClient, machineNode } from "../../fixtures/client-package.ts";
import { Cases } from "../cases.ts";
import { type Failure, type Suite, Unavailable } from "../suite.ts";

const PUBLINT = "publint@0.3.25";
const ATTW = "@arethetypeswrong/cli@0.18.5";
const LIMIT_MS = 500_000;

interface Analysis {
  readonly analysis: { readonly entrypoints: Readonly<Record<string, { readonly resolutions: object }>> };
  readonly problems: Readonly<
    Record<string, readonly { readonly kind: string; readonly entrypoint?: string; readonly resolutionKind?: string }[]>
  >;
}

/** The packed client library by npm's programs; test/node/client/package.nightly.ts compiles programs with it. */
export const CONSUMERS: Suite = {
  name: "consumers",
  about: "the packed client library by publint and arethetypeswrong",
  cases: 17,
  run: async () => {
    const machine = machineNode();
    if (typeof machine === "string") throw new Unavailable(machine);
    await using folder = await mkdtempDisposable(join(tmpdir(), "consumers-"));
    const program = (await installClient(folder.path, machine.path)).folder;
    const [tarball = ""] = globSync("*.tgz", { cwd: program });
    const options = { cwd: folder.path, env: { ...process.env, PATH: machine.path }, timeout: LIMIT_MS } as const;
    for (const tool of [PUBLINT, ATTW])
      await execa("npx", ["--yes", tool, "--version"], options).catch((error: unknown) => {
        throw new Unavailable(`npx did not run ${tool}: ${messageOf(error)}`);
      });
    const cases = new Cases();
    await cases.check("publint has nothing to say", async () => {
      const words = ["--yes", PUBLINT, join(program, tarball), "--strict"];
      const { stdout, exitCode } = await execa("npx", words, { ...options, reject: false });
      if (exitCode !== 0 || !stdout.includes("All good!")) throw new Error(stdout);
    });
    // Into a file: attw ends before a pipe has taken all.
    const report = join(folder.path, "report.json");
    const descriptor = openSync(report, "w");
    const words = ["--yes", ATTW, join(program, tarball), "--format", "json"];
    spawnSync("npx", words, { ...options, stdio: ["ignore", descriptor, "ignore"] });
    closeSync(descriptor);
    const { analysis, problems } = JSON.parse(await readFile(report, "utf8")) as Analysis;
    const resolutions = Object.values(analysis.entrypoints).flatMap((each) => Object.keys(each.resolutions));
    const failures: Failure[] = Object.values(problems)
      .flat()
      .map(({ kind, entrypoint = "the package", resolutionKind = "all" }) => ({
        name: `attw: ${kind} of ${entrypoint} by ${resolutionKind}`,
        problem: "see its page on problems",
      }));
    return {
      version: [PUBLINT, ATTW].join(", "),
      cases: cases.count + resolutions.length,
      failures: [...cases.failures, ...failures],
    };
  },
};
