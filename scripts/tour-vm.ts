/**
 * `npm run tour:vm`: the life of a sandbox in a real microVM, on the development substrate. Makes it, puts it to sleep
 * with a kept command, wakes it up, forks it, removes it and sweeps. Every line after `>` is what a person would type.
 */
import { globSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa, execaNode } from "execa";
import { PATIENT, SubstrateDaemon } from "../test/fixtures/substrate-daemon.ts";
import { runScript, words } from "./machine/script.ts";
import { Report } from "./tour/report.ts";
import { GUESTCTL } from "./tour/sandbox.ts";

const USAGE = `usage: npm run tour:vm

Builds the agent, starts the development substrate (QEMU; npm run substrate) with state of its own, and leads a sandbox through
its life with guestctl. Takes some minutes where guests are emulated. Nothing is left.`;

const ROOT = join(import.meta.dirname, "..");
/** An emulated guest on a busy machine boots slowly. */
const REACH = "10m";
const COUNT = 40;
/** Of an answer that is shown whole. */
const MOST_LINES = 20;
/** Counts for eight seconds, more than a standby takes. */
const COUNTING = `i=0; while [ $i -lt ${COUNT} ]; do i=$((i+1)); echo $i; sleep 0.2; done`;

/** Runs guestctl as a person runs it, and returns its standard output. Throws when it fails; warnings are no failure. */
type Guestctl = (...args: readonly string[]) => Promise<string>;

/** @param env what guestctl needs to find the substrate; the report shows what is typed, and the output */
function guestctlIn(env: NodeJS.ProcessEnv, report: Report): Guestctl {
  return async (...args) => {
    report.asked(`guestctl ${args.join(" ")}`);
    const result = await execa(GUESTCTL, args, { env, stdin: "ignore", reject: false });
    const { stdout, stderr, exitCode, failed } = result;
    const lines = `${stderr}\n${stdout}`.trim().split("\n");
    report.came(lines.length > MOST_LINES ? `${lines.slice(0, 3).join(" ")} … ${lines.at(-1)}` : lines.join("\n"));
    // 1: with warnings.
    if (failed && exitCode !== 1) throw new Error(`guestctl left with ${exitCode}: ${stderr}`);
    return stdout.trim();
  };
}

async function life(report: Report, guestctl: Guestctl): Promise<void> {
  report.step("Make a sandbox: credentials, volumes, the instance, and Health as the sign that it is there");
  await guestctl("sandbox", "create", "--name", "box", "--wait", REACH, "busybox", "--", "sleep", "100000");

  report.step("Start a command that outlives its connection, and put the sandbox to sleep under it");
  await guestctl("exec", "--sandbox", "box", "--name", "count", "-d", "--", "sh", "-c", COUNTING);
  await guestctl("sandbox", "standby", "box");

  report.step("Wake it up: restore, fresh entropy, the right time; and the command has lost nothing");
  await guestctl("sandbox", "resume", "box", "--wait", REACH);
  const counted = await guestctl("attach", "--sandbox", "box", "count");
  const wanted = Array.from({ length: COUNT }, (_, index) => `${index + 1}`);
  report.expect("the lines of the kept command", counted.split("\n"), wanted);

  report.step("Fork it: credentials and random numbers of its own");
  await guestctl("sandbox", "fork", "box", "--name", "twin", "--wait", REACH);
  const uuid = (name: string): Promise<string> =>
    guestctl("exec", "--sandbox", name, "--", "cat", "/proc/sys/kernel/random/uuid");
  report.expect("that both have the same random numbers", (await uuid("box")) === (await uuid("twin")), false);
  await guestctl("sandbox", "ls");

  report.step("Remove both; a sweep finds nothing that is left");
  await guestctl("sandbox", "rm", "box", "twin");
  await guestctl("sandbox", "sweep");
}

async function main(): Promise<number> {
  words(0);
  const report = new Report();
  report.step("Build the agent and guestctl");
  await execaNode(join(ROOT, "scripts", "build.ts"), ["x64"], { stdout: "inherit", stderr: "inherit" });
  report.step("Start the development substrate");
  report.asked("npm run substrate");
  await using state = await mkdtempDisposable(join(tmpdir(), "tour-vm-"));
  await using daemon = await SubstrateDaemon.start((prepared) => {
    prepared.args = PATIENT;
  });
  await daemon.imageReady("busybox");
  report.came(daemon.url);
  const [archive = ""] = globSync(join(ROOT, "dist", "guest-agent-*-linux-x64.tar.gz"));
  const env = {
    HYPEMAN_BASE_URL: daemon.url,
    HYPEMAN_API_KEY: daemon.token,
    GUESTCTL_STATE: state.path,
    GUESTCTL_NODE_ID: "tour",
    GUESTCTL_AGENT: archive,
  };
  await life(report, guestctlIn(env, report));
  console.log("\nThe sandbox lived as it should, and nothing is left of it.");
  return 0;
}

await runScript("tour:vm", USAGE, main);
