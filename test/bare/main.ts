/**
 * Types the README's commands on machines with a minimal Debian. Types them as root on Debian 12, and on Debian 13 as
 * an ordinary user who first follows the advice of the refusals. Each first has Debian's own Node and npm, and then
 * current ones: `npm run test:bare`. Ends with the line `N passed, N failed`.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join, relative } from "node:path";
import { ADMINISTRATOR, BareMachine, ORDINARY_USER, type Outcome, type Person } from "./machine.ts";
import { repositoryFiles, ROOT } from "../../scripts/check.ts";
import { providePrograms } from "../../scripts/machine/programs.ts";
import { standaloneFolder } from "../fixtures/bundles.ts";
import { onEndSignal, runScript, UsageError, words } from "../../scripts/machine/script.ts";

const USAGE = `usage: npm run test:bare [-- 12|13]
  12   only on Debian 12, as root
  13   only on Debian 13, as an ordinary user`;

const MACHINES = [
  { name: "12", release: "bookworm", person: ADMINISTRATOR },
  { name: "13", release: "trixie", person: ORDINARY_USER },
] as const;

/** Tests that start agents and commands and use terminals, files and /proc; and those that set up a clone. */
const TESTS =
  "test/house test/agent/exec test/agent/hooks test/agent/workload test/agent/files/calls/read.test.ts test/agent/files/calls/write-refusals.test.ts test/node/guestctl/terminal";
/** The test that uses npm most: it packs and installs the client library. */
const TEST_OF_NPM = "test/node/client/package.nightly.ts";
const FOLDER = join(ROOT, "dist", ".bare");
/** The output must not have apt-get's messages. */
const TOUR_LINES = 120;

/** A clone of this checkout on a machine, in a private folder. */
interface Clone {
  readonly machine: BareMachine;
  readonly person: Person;
  readonly folder: string;
}

const failures: string[] = [];
let passed = 0;

/** Records the verdict, and prints a failed command's output. */
function judge(title: string, outcome: Outcome, complaint: string | undefined): void {
  const seconds = `${outcome.seconds.toFixed(0)} s`;
  if (complaint === undefined) {
    passed++;
    console.log(`✔ ${title} (${seconds})`);
  } else {
    failures.push(title);
    console.log(`${outcome.output}\n✖ ${title} (${seconds}): ${complaint}`);
  }
}

async function makeClone(machine: BareMachine, person: Person): Promise<Clone> {
  const folder = join(person.home, "private", "guest-agent");
  machine.addFiles(await repositoryFiles(), ROOT, folder);
  const { uid, name, home } = person;
  const isThere = `id ${name} >/dev/null 2>&1 || useradd --uid ${uid} --shell /bin/bash --home-dir ${home} ${name}`;
  const line = `${isThere}; chown -R ${uid}:${uid} ${home} && chmod 700 ${home}/private`;
  const { code, output } = await machine.run(ADMINISTRATOR, "/", line);
  if (code !== 0) throw new Error(`the machine could not be prepared: ${output}`);
  return { machine, person, folder };
}

async function tour({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, "npm start");
  const lines = outcome.output.split("\n").length;
  const ended = outcome.code === 0 && outcome.output.includes("Everything came back as it should.");
  const complaint = ended ? undefined : `exit ${outcome.code}`;
  const noise = lines > TOUR_LINES ? `${lines} lines, of at most ${TOUR_LINES}` : undefined;
  judge(`npm start, as ${person.name}`, outcome, complaint ?? noise);
}

/** What is shipped must not depend on who builds it where: the code cache is of the functions that a run called. */
async function sameBytes({ machine, person, folder }: Clone): Promise<void> {
  const own = join(standaloneFolder(), "agent.bin");
  const line = `sha256sum < ${join(folder, relative(ROOT, own))}`;
  const [there, here] = [await machine.run(person, folder, line), execFileSync("sh", ["-c", `sha256sum < "${own}"`])];
  const same = there.code === 0 && there.output.trim() === String(here).trim();
  judge("agent.bin has the bytes that this machine gives it", there, same ? undefined : `not ${String(here)}`);
}

async function someTests({ machine, person, folder }: Clone, paths: string): Promise<void> {
  const outcome = await machine.run(person, folder, `npm test -- ${paths}`);
  const counts = outcome.output.trimEnd().split("\n").at(-1) ?? "";
  const good = outcome.code === 0 && /^[1-9]\d* passed, 0 failed, \d+ skipped$/.test(counts);
  judge(`npm test of a part, as ${person.name}: ${counts}`, outcome, good ? undefined : `exit ${outcome.code}`);
}

async function tests({ machine, person, folder }: Clone): Promise<void> {
  await someTests({ machine, person, folder }, `${TESTS} ${TEST_OF_NPM}`);
  const left = await machine.run(ADMINISTRATOR, "/", "ls -A /tmp /sys /dev/shm");
  judge(
    "nothing is left in /tmp, /sys and /dev/shm",
    left,
    left.output === "/dev/shm:\n\n/sys:\n\n/tmp:" ? undefined : "something is",
  );
}

/** A step of the machine's administrator. */
async function administer(machine: BareMachine, title: string, line: string): Promise<void> {
  const outcome = await machine.run(ADMINISTRATOR, "/", line);
  const told = outcome.output.trimEnd().split("\n").at(-1) ?? "";
  judge(`root ${title}: ${told}`, outcome, outcome.code === 0 ? undefined : `exit ${outcome.code}`);
}

/** Quiet about the packages; if apt-get fails it prints enough. */
function aptInstall(packages: string): string {
  return `export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq -y install --no-install-recommends ${packages}`;
}

const VERSIONS = 'echo "Node $(node --version), npm $(npm --version)"';

/** The Node of Debian 12 is too old. The command in the error message must be enough; npm stays Debian's. */
async function followAdviceOnNode({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, "npm start");
  const [, command] = /Debian 12: apt-get install npm && (npm install --global node@\d+)\)/.exec(outcome.output) ?? [];
  const refused = outcome.code === 1 && command !== undefined && !/installing/.test(outcome.output);
  judge(`npm start refuses that Node: ${command}`, outcome, refused ? undefined : `exit ${outcome.code}`);
  await administer(machine, "does so", `${command} >/dev/null && hash -r && ${VERSIONS}`);
}

/** Only root can install packages. Those that the error message names must be enough. */
async function followAdvice({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, "npm start");
  const [, packages] = /apt-get install ([a-z0-9 +.-]+)\)/.exec(outcome.output) ?? [];
  const refused = outcome.code === 1 && packages !== undefined;
  judge(`npm start names what is missing: ${packages}`, outcome, refused ? undefined : `exit ${outcome.code}`);
  await administer(machine, "installs that", aptInstall(packages ?? ""));
}

/** A set-up without a network and with an empty cache. */
async function offline({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, "npm_config_cache=~/private/empty npm start", "offline");
  const isTold = outcome.code === 1 && /^setup: no network: \S+ does not answer/m.test(outcome.output);
  judge("npm start without a network says so", outcome, isTold ? undefined : `exit ${outcome.code}`);
}

/** From the packages on, with a current Node and npm. */
async function withCurrentNpm(clone: Clone): Promise<void> {
  const { machine, person, folder } = clone;
  const install = "npm install --global node@22 >/dev/null && npm install --global npm >/dev/null";
  await administer(machine, "installs a current Node and npm", `${install} && hash -r && ${VERSIONS}`);
  await machine.run(person, folder, "rm -rf node_modules");
  await someTests(clone, TEST_OF_NPM);
}

async function run(asked: readonly string[], stop: AbortSignal): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, release, person } of MACHINES) {
    if (asked.length > 0 && !asked.includes(name)) continue;
    console.log(`Debian ${name}`);
    using machine = new BareMachine(release, FOLDER, stop);
    const clone = await makeClone(machine, person);
    await administer(machine, "installs Debian's npm", `${aptInstall("npm")} >/dev/null && ${VERSIONS}`);
    if (release === "bookworm") await followAdviceOnNode(clone);
    if (person === ORDINARY_USER) {
      await followAdvice(clone);
      await offline(clone);
    }
    await tour(clone);
    // Debian 13's strip and compiler are others.
    if (release === "bookworm") await sameBytes(clone);
    await tests(clone);
    await withCurrentNpm(clone);
    stop.throwIfAborted();
  }
}

await runScript("test:bare", USAGE, async () => {
  const asked = words();
  const unknown = asked.find((word) => !MACHINES.some(({ name }) => name === word));
  if (unknown !== undefined) throw new UsageError(`"${unknown}" is neither 12 nor 13`);
  if (process.getuid?.() !== 0) throw new Error("needs root, to make a machine of its own");
  const [missing] = providePrograms([{ name: "debootstrap", package: "debootstrap" }], "for a bare machine");
  if (missing !== undefined) throw new Error(`needs ${missing.name}`);
  const stop = new AbortController();
  onEndSignal(() => stop.abort());
  await run(asked, stop.signal);
  console.log(`${passed} passed, ${failures.length} failed`);
  return failures.length === 0 ? 0 : 1;
});
