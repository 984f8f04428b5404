/**
 * Types what the README says on a machine that has nothing but Debian's minimal installation, Node and npm: `npm start`
 * and a part of `npm test`, once as root and once as an ordinary user, who first does as the refusal advises: `npm run
 * test:bare`. Ends with the line `N passed, N failed`.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { ADMINISTRATOR, BareMachine, ORDINARY_USER, type Outcome, type Person } from "./bare/machine.ts";
import { repositoryFiles, ROOT } from "./checks/tool.ts";
import { providePrograms } from "./machine/programs.ts";
import { onEndSignal, runScript, UsageError, words } from "./machine/script.ts";

const USAGE = `usage: npm run test:bare [-- root|user]
  root   only as root
  user   only as an ordinary user`;

/** Tests that start agents and commands and use terminals, files and /proc; and those that set up a clone. */
const TESTS =
  "test/house test/exec test/hooks test/workload test/files/read.test.ts test/files/write-refusals.test.ts test/cli/session";
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

async function tests({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, `npm test -- ${TESTS}`);
  const counts = outcome.output.trimEnd().split("\n").at(-1) ?? "";
  const good = outcome.code === 0 && /^[1-9]\d* passed, 0 failed, \d+ skipped$/.test(counts);
  judge(`npm test of a part, as ${person.name}: ${counts}`, outcome, good ? undefined : `exit ${outcome.code}`);
  const left = await machine.run(ADMINISTRATOR, "/", "ls -A /tmp /sys /dev/shm");
  judge(
    "nothing is left in /tmp, /sys and /dev/shm",
    left,
    left.output === "/dev/shm:\n\n/sys:\n\n/tmp:" ? undefined : "something is",
  );
}

/** Only root can install packages. Those that the error message names must be enough. */
async function followAdvice({ machine, person, folder }: Clone): Promise<void> {
  const outcome = await machine.run(person, folder, "npm start");
  const [, packages] = /apt-get install ([a-z0-9 +.-]+)\)/.exec(outcome.output) ?? [];
  const refused = outcome.code === 1 && packages !== undefined;
  judge(`npm start names what is missing: ${packages}`, outcome, refused ? undefined : `exit ${outcome.code}`);
  const install = `apt-get -qq update && apt-get -qq -y install --no-install-recommends ${packages}`;
  const installed = await machine.run(ADMINISTRATOR, "/", `DEBIAN_FRONTEND=noninteractive; ${install}`);
  judge("root installs that", installed, installed.code === 0 ? undefined : `exit ${installed.code}`);
}

async function run(asked: readonly string[], stop: AbortSignal): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const person of [ADMINISTRATOR, ORDINARY_USER]) {
    const name = person === ADMINISTRATOR ? "root" : "user";
    if (asked.length > 0 && !asked.includes(name)) continue;
    using machine = new BareMachine(FOLDER, stop);
    const clone = await makeClone(machine, person);
    if (person === ORDINARY_USER) await followAdvice(clone);
    await tour(clone);
    await tests(clone);
    stop.throwIfAborted();
  }
}

await runScript("test:bare", USAGE, async () => {
  const asked = words();
  const unknown = asked.find((word) => word !== "root" && word !== "user");
  if (unknown !== undefined) throw new UsageError(`"${unknown}" is neither root nor user`);
  if (process.getuid?.() !== 0) throw new Error("needs root, to make a machine of its own");
  const [missing] = providePrograms([{ name: "debootstrap", package: "debootstrap" }], "for a bare machine");
  if (missing !== undefined) throw new Error(`needs ${missing.name}`);
  const stop = new AbortController();
  onEndSignal(() => stop.abort());
  await run(asked, stop.signal);
  console.log(`${passed} passed, ${failures.length} failed`);
  return failures.length === 0 ? 0 : 1;
});
