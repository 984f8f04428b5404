/**
 * Makes a release of what is committed, in two steps with a commit between them: `npm run release -- VERSION`. See
 * `--help`.
 */
import { join, relative } from "node:path";
import { execa } from "execa";
import { runScript, UsageError, words } from "./machine/script.ts";
import { keepRelease } from "./release/keep.ts";
import { projectVersion, releaseFault, setVersion, versionFaults } from "./release/version.ts";

const ROOT = join(import.meta.dirname, "..");

const USAGE = `usage: npm run release -- VERSION
  first   writes VERSION into package.json and whatever else names it, and dates the changelog: look at it, and commit
  again   on that commit, puts what later versions are tested with into compat/vVERSION: commit that, and tag the first commit
CONTRIBUTING.md ("A release") says what to run before.`;

async function git(...args: readonly string[]): Promise<string> {
  return (await execa("git", args, { cwd: ROOT })).stdout;
}

await runScript("release", USAGE, async () => {
  const [version = ""] = words(1);
  if (!/^\d+\.\d+\.\d+$/.test(version)) throw new UsageError(`"${version}" is not a version such as 0.2.0`);
  const changes = await git("status", "--porcelain");
  if (changes !== "") throw new Error(`a release is made of a commit; commit or remove first:\n${changes}`);
  const fault = releaseFault(ROOT, version);
  if (fault !== undefined) throw new Error(fault);
  if (projectVersion(ROOT) !== version) {
    setVersion(ROOT, version, new Date().toISOString().slice(0, "YYYY-MM-DD".length));
    const faults = versionFaults(ROOT);
    if (faults.length > 0) throw new Error(faults.join("\n"));
    console.log(`wrote version ${version}: look at it (git diff), commit it, and run this again`);
    return 0;
  }
  const commit = await git("rev-parse", "HEAD");
  const directory = relative(ROOT, await keepRelease(ROOT, version, commit));
  console.log(`made ${directory}: commit it, and tag what it was made of: git tag v${version} ${commit}`);
  return 0;
});
