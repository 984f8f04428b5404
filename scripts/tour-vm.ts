/**
 * `npm run tour:vm`: the life of a sandbox in a real microVM, on the development substrate. Makes it, puts it to sleep
 * with a kept command, wakes it up, forks it, removes it and sweeps. Every line after `$` is what a person would type.
 */
import { globSync, mkdtempSync, rmSync } from "node:fs";
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
/** Counts for eight seconds, more than a standby takes. */
const COUNTING = `i=0; while [ $i -lt ${COUNT} ]; do i=$((i+1)); echo $i; sleep 0.2; done`;

/** guestctl as a person runs it, with what it needs to find the substrate in its environment. */
class Terminal {
  readonly #report: Report;
  readonly #env: NodeJS.ProcessEnv;

  constructor(report: Report, env: NodeJS.ProcessEnv) {
    this.#report = report;
    this.#env = env;
  }

  /** Runs it, shows its output, and returns its standard output. Throws when it fails; warnings are no failure. */
  async run(args: readonly string[], { isShown = true }: { readonly isShown?: boolean } = {}): Promise<string> {
    this.#report.asked(`guestctl ${args.join(" ")}`);
    const { stdout, stderr, exitCode, failed } = await execa(GUESTCTL, args, {
      env: this.#env,
      stdin: "ignore",
      reject: false,
    });
    if (isShown) this.#report.came(`${stderr}\n${stdout}`.trim());
    if (failed && exitCode !== 1) throw new Error(`guestctl left with ${exitCode}: ${stderr}`);
    return stdout;
  }

  /** A command in the sandbox of that name. */
  async inside(name: string, args: readonly string[], show?: { readonly isShown?: boolean }): Promise<string> {
    return this.run([...args.slice(0, 1), ...(await this.#connection(name)), ...args.slice(1)], show);
  }

  async #connection(name: string): Promise<string[]> {
    const { stdout } = await execa(GUESTCTL, ["sandbox", "ls", "--json"], { env: this.#env });
    const { sandboxes } = JSON.parse(stdout) as { sandboxes: { name: string; address: string; credentials: string }[] };
    const found = sandboxes.find((sandbox) => sandbox.name === name);
    if (found === undefined) throw new Error(`guestctl lists no sandbox ${name}`);
    return ["--address", found.address, "--credentials", found.credentials];
  }
}

async function life(report: Report, guestctl: Terminal): Promise<void> {
  report.step("Make a sandbox: credentials, volumes, the instance, and Health as the sign that it is there");
  await guestctl.run(["sandbox", "create", "--name", "box", "--wait", REACH, "busybox", "--", "sleep", "100000"]);

  report.step("Start a command that outlives its connection, and put the sandbox to sleep under it");
  await guestctl.inside("box", ["exec", "--name", "count", "-d", "--", "sh", "-c", COUNTING]);
  await guestctl.run(["sandbox", "standby", "box"]);

  report.step("Wake it up: restore, fresh entropy, the right time; and the command has lost nothing");
  await guestctl.run(["sandbox", "resume", "box", "--wait", REACH]);
  const counted = await guestctl.inside("box", ["attach", "count"], { isShown: false });
  const lines = counted.trim().split("\n");
  report.came(`${lines.slice(0, 3).join(" ")} … ${lines.at(-1)}`);
  report.expect(
    "the lines of the kept command",
    lines,
    Array.from({ length: COUNT }, (_, index) => String(index + 1)),
  );

  report.step("Fork it: credentials and random numbers of its own");
  await guestctl.run(["sandbox", "fork", "box", "--name", "twin", "--wait", REACH]);
  const uuids: string[] = [];
  for (const name of ["box", "twin"])
    uuids.push(await guestctl.inside(name, ["exec", "--", "cat", "/proc/sys/kernel/random/uuid"]));
  report.expect("different random numbers", new Set(uuids).size, uuids.length);
  await guestctl.run(["sandbox", "ls"]);

  report.step("Remove both; a sweep finds nothing that is left");
  await guestctl.run(["sandbox", "rm", "box", "twin"]);
  await guestctl.run(["sandbox", "sweep"]);
}

async function main(): Promise<number> {
  words(0);
  const report = new Report();
  report.step("Build the agent and guestctl");
  await execaNode(join(ROOT, "scripts", "build.ts"), ["x64"], { stdout: "inherit", stderr: "inherit" });
  report.step("Start the development substrate");
  report.asked("npm run substrate");
  const state = mkdtempSync(join(tmpdir(), "tour-vm-"));
  try {
    await using daemon = await SubstrateDaemon.start((prepared) => {
      prepared.args = PATIENT;
    });
    await daemon.imageReady("busybox");
    report.came(daemon.url);
    const [archive = ""] = globSync(join(ROOT, "dist", "guest-agent-*-linux-x64.tar.gz"));
    const env = {
      HYPEMAN_BASE_URL: daemon.url,
      HYPEMAN_API_KEY: daemon.token,
      GUESTCTL_STATE: state,
      GUESTCTL_NODE_ID: "tour",
      GUESTCTL_AGENT: archive,
    };
    await life(report, new Terminal(report, env));
  } finally {
    rmSync(state, { recursive: true });
  }
  console.log("\nThe sandbox lived as it should, and nothing is left of it.");
  return 0;
}

await runScript("tour:vm", USAGE, main);
