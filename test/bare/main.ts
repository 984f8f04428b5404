/**
 * Types the README's commands on machines with a minimal Debian 12 and 13, as root and as an ordinary user who first
 * follows the advice of the refusals: `npm run test:bare`. `npm run test:bare -- core` is the part that every landing
 * must pass. Ends with the line `N passed, N failed`.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { ADMINISTRATOR, aptInstall, BareMachine, ORDINARY_USER, type Outcome, type Person } from "./machine.ts";
import { CloneLayer, installedLayer } from "./layers.ts";
import { repositoryFiles, ROOT } from "../../scripts/check.ts";
import { providePrograms } from "../../scripts/machine/programs.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { onEndSignal, runScript, UsageError } from "../../scripts/machine/script.ts";
import { type DebianRelease, debianRoot } from "../system/debian-archive.ts";

const USAGE = `usage: npm run test:bare [-- [--start] PART...]
  12-root  Debian 12: npm start and npm test as root in /srv
  12-user  the same as an ordinary user in a directory with a space, with umask 077
  13-root, 13-user  Debian 13: the same
  core     Debian 13 with the packages that a clone requires: a part of npm test, as root in /srv
  --start  npm start only
  default: all but core`;

/** The core: tests that once required more programs than a minimal Debian has, or a clone that is not in /srv. */
const CORE_TESTS = "test/agent/supervision test/agent/session test/node/sandboxes test/system";
/** The test that uses npm most: it packs and installs the client library. */
const TEST_OF_NPM = "test/node/client/package.nightly.ts";
const DIRECTORY = join(ROOT, "dist", ".bare");
/** The output must not have apt-get's messages. */
const TOUR_LINES = 120;

/** A person, the place of that person's clone, and umask(2) for all commands. */
interface Newcomer {
  readonly person: Person;
  readonly directory: string;
  readonly umask: string;
  /** Whether the machine has /sys and with it cgroups. */
  readonly hasSys: boolean;
}

/** In the place where the substrate's guests have the agent. */
const ROOT_IN_SRV: Newcomer = { person: ADMINISTRATOR, directory: "/srv/guest-agent", umask: "022", hasSys: true };
const USER_IN_HOME: Newcomer = {
  person: ORDINARY_USER,
  directory: join(ORDINARY_USER.home, "a private place", "guest-agent"),
  umask: "077",
  hasSys: false,
};

const NEWCOMERS: Readonly<Record<string, readonly [DebianRelease, Newcomer]>> = {
  "12-root": ["bookworm", ROOT_IN_SRV],
  "12-user": ["bookworm", USER_IN_HOME],
  "13-root": ["trixie", ROOT_IN_SRV],
  "13-user": ["trixie", USER_IN_HOME],
};

/** A clone of this checkout on a machine. */
interface Clone extends Newcomer {
  readonly machine: BareMachine;
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

/** Runs a newcomer's command line in the clone. */
function type({ machine, person, directory, umask }: Clone, line: string, network?: "offline"): Promise<Outcome> {
  return machine.run(person, directory, `umask ${umask}; ${line}`, network);
}

/** Copies this checkout to the machine, below a directory that others may not enter if the newcomer's umask says so. */
async function makeClone(machine: BareMachine, who: Newcomer): Promise<Clone> {
  const { person, directory, umask } = who;
  machine.addFiles(await repositoryFiles(), ROOT, directory);
  const { uid, name, home } = person;
  const isThere = `id ${name} >/dev/null 2>&1 || useradd --uid ${uid} --shell /bin/bash --home-dir ${home} ${name}`;
  const modes = umask === "077" ? `chmod -R go= '${dirname(directory)}'` : ":";
  const line = `${isThere}; chown -R ${uid}:${uid} ${home} '${directory}' && ${modes}`;
  const { code, output } = await machine.run(ADMINISTRATOR, "/", line);
  if (code !== 0) throw new Error(`the machine could not be prepared: ${output}`);
  return { machine, ...who };
}

async function tour(clone: Clone): Promise<void> {
  const outcome = await type(clone, "npm start");
  const lines = outcome.output.split("\n").length;
  const ended = outcome.code === 0 && outcome.output.includes("Everything came back as it should.");
  const complaint = ended ? undefined : `exit ${outcome.code}`;
  const noise = lines > TOUR_LINES ? `${lines} lines, of at most ${TOUR_LINES}` : undefined;
  judge(`npm start, as ${clone.person.name}`, outcome, complaint ?? noise);
}

/** What is shipped must not depend on who builds it where: the code cache is of the functions that a run called. */
async function sameBytes(clone: Clone): Promise<void> {
  const own = join(standaloneDirectory(), "agent.bin");
  const line = `sha256sum < '${relative(ROOT, own)}'`;
  const [there, here] = [await type(clone, line), execFileSync("sh", ["-c", `sha256sum < "${own}"`])];
  const same = there.code === 0 && there.output.trim() === String(here).trim();
  judge("agent.bin has the same bytes as a build on this machine", there, same ? undefined : `not ${String(here)}`);
}

/** @param paths of tests; none: all. @param network "offline": ports of this machine's programs do not matter */
async function tests(clone: Clone, paths = "", network?: "offline"): Promise<void> {
  const line = paths === "" ? "npm test" : `npm test -- ${paths}`;
  const outcome = await type(clone, line, network);
  const counts = outcome.output.trimEnd().split("\n").at(-1) ?? "";
  const good = outcome.code === 0 && /^[1-9]\d* passed, 0 failed, \d+ skipped$/.test(counts);
  judge(`${line}, as ${clone.person.name}: ${counts}`, outcome, good ? undefined : `exit ${outcome.code}`);
  for (const reason of skips(outcome.output)) console.log(`  skipped: ${reason}`);
}

/** Reasons of skipped tests, each with how often it is given. */
function skips(output: string): string[] {
  const list = /^SKIPPED\n((?: {2}.*\n)*)/m.exec(output)?.[1] ?? "";
  const reasons = Array.from(list.matchAll(/ \(([^()]*(?:\([^()]*\)[^()]*)*)\)$/gm), ([, reason = ""]) => reason);
  return [...Map.groupBy(reasons, (reason) => reason)].map(([reason, all]) => `${all.length} times: ${reason}`);
}

async function leavesNothing({ machine, hasSys }: Clone): Promise<void> {
  const left = await machine.run(ADMINISTRATOR, "/", `ls -A /tmp /dev/shm ${hasSys ? "" : "/sys"}`);
  const nothing = hasSys ? "/dev/shm:\n\n/tmp:" : "/dev/shm:\n\n/sys:\n\n/tmp:";
  judge("nothing is left in temporary directories", left, left.output === nothing ? undefined : "something is");
}

/** Prints what the clone takes, for the README. */
async function size(clone: Clone, when: string): Promise<void> {
  // Of the directory itself du counts what it has not counted before.
  const line = "du -sc --block-size=MB node_modules dist .cache . 2>/dev/null";
  const { output } = await type(clone, line);
  const parts = Array.from(output.matchAll(/^(\d+)MB\t(\S+)$/gm), ([, megabytes, name]) => `${name} ${megabytes} MB`);
  console.log(`  ${when} the clone takes: ${parts.join(", ")}`);
}

/** A step of the machine's administrator. */
async function administer(machine: BareMachine, title: string, line: string): Promise<void> {
  const outcome = await machine.run(ADMINISTRATOR, "/", line);
  const said = outcome.output.trimEnd().split("\n").at(-1) ?? "";
  judge(`root ${title}: ${said}`, outcome, outcome.code === 0 ? undefined : `exit ${outcome.code}`);
}

const VERSIONS = 'echo "Node $(node --version), npm $(npm --version)"';

/** The Node of Debian 12 is too old. The command in the error message must be enough; npm stays Debian's. */
async function followAdviceOnNode(clone: Clone): Promise<void> {
  const outcome = await type(clone, "npm start");
  const [, command] = /Debian 12: apt-get install npm && (npm install --global node@\d+)\)/.exec(outcome.output) ?? [];
  const refused = outcome.code === 1 && command !== undefined && !/installing/.test(outcome.output);
  judge(`npm start refuses that Node: ${command}`, outcome, refused ? undefined : `exit ${outcome.code}`);
  await administer(clone.machine, "does so", `${command} >/dev/null && hash -r && ${VERSIONS}`);
}

/** Only root can install packages. Those that the error message names must be enough. */
async function followAdvice(clone: Clone): Promise<void> {
  const outcome = await type(clone, "npm start");
  const [, packages] = /apt-get install ([a-z0-9 +.-]+)\)/.exec(outcome.output) ?? [];
  const refused = outcome.code === 1 && packages !== undefined;
  judge(`npm start names what is missing: ${packages}`, outcome, refused ? undefined : `exit ${outcome.code}`);
  await administer(clone.machine, "installs that", aptInstall(packages ?? ""));
}

/** A set-up without a network and with an empty cache. */
async function offline(clone: Clone): Promise<void> {
  const outcome = await type(clone, 'npm_config_cache="$PWD/../empty" npm start', "offline");
  const isReported = outcome.code === 1 && /^setup: no network: \S+ does not answer/m.test(outcome.output);
  judge("npm start without a network says so", outcome, isReported ? undefined : `exit ${outcome.code}`);
}

/** From the packages on, with a current Node and npm. */
async function withCurrentNpm(clone: Clone): Promise<void> {
  const install = "npm install --global node@22 >/dev/null && npm install --global npm >/dev/null";
  await administer(clone.machine, "installs a current Node and npm", `${install} && hash -r && ${VERSIONS}`);
  await type(clone, "rm -rf node_modules");
  await tests(clone, TEST_OF_NPM);
}

/** A machine on which one newcomer does what the README says. */
async function newcomer(release: DebianRelease, who: Newcomer, startsOnly: boolean, abort: AbortSignal): Promise<void> {
  console.log(`\n${release}, ${who.person.name} in ${who.directory}, umask ${who.umask}`);
  using machine = new BareMachine({ layers: [debianRoot(release)], directory: DIRECTORY, hasSys: who.hasSys, abort });
  const clone = await makeClone(machine, who);
  await administer(machine, "installs Debian's npm", `${aptInstall("npm")} >/dev/null && ${VERSIONS}`);
  if (release === "bookworm") await followAdviceOnNode(clone);
  if (who.person === ORDINARY_USER) {
    await followAdvice(clone);
    await offline(clone);
  }
  await tour(clone);
  await size(clone, "after npm start");
  // Debian 13's strip and compiler are others.
  if (release === "bookworm") await sameBytes(clone);
  if (startsOnly) {
    await leavesNothing(clone);
    return;
  }
  await tests(clone);
  await size(clone, "after npm test");
  await tests(clone, TEST_OF_NPM);
  await leavesNothing(clone);
  await withCurrentNpm(clone);
  abort.throwIfAborted();
}

/** After the set-up of a newcomer, which .ci/run has a part for. */
async function core(abort: AbortSignal): Promise<void> {
  const [release, { directory, hasSys }] = ["trixie", ROOT_IN_SRV] as const;
  const installed = await installedLayer(release, abort);
  using copied = await CloneLayer.make(DIRECTORY, directory);
  using machine = new BareMachine({
    layers: [copied.path, installed, debianRoot(release)],
    directory: DIRECTORY,
    hasSys,
    abort,
  });
  const clone = { machine, ...ROOT_IN_SRV };
  await tests(clone, CORE_TESTS, "offline");
  await leavesNothing(clone);
}

await runScript("test:bare", USAGE, async () => {
  const { values, positionals: parts } = parseArgs({
    options: { start: { type: "boolean", default: false } },
    allowPositionals: true,
  });
  const unknown = parts.find((part) => part !== "core" && NEWCOMERS[part] === undefined);
  if (unknown !== undefined) throw new UsageError(`"${unknown}" is not a part`);
  if (process.getuid?.() !== 0) throw new Error("needs root, to make a machine of its own");
  const [missing] = providePrograms([{ name: "debootstrap", package: "debootstrap" }], "for a bare machine");
  if (missing !== undefined) throw new Error(`needs ${missing.name}`);
  const stop = new AbortController();
  onEndSignal(() => stop.abort());
  mkdirSync(DIRECTORY, { recursive: true });
  for (const part of parts.length > 0 ? parts : Object.keys(NEWCOMERS)) {
    const chosen = NEWCOMERS[part];
    if (chosen === undefined) await core(stop.signal);
    else await newcomer(...chosen, values.start, stop.signal);
  }
  console.log(`${passed} passed, ${failures.length} failed`);
  return failures.length === 0 ? 0 : 1;
});
