import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { loadAddon } from "../../../src/agent/native/index.ts";
import { SessionCgroup } from "../../../src/agent/platform/index.ts";
import { cgroupMounts } from "../../fixtures/proc.ts";
import type { Bench } from "../bench.ts";
import { makeRow, type Row } from "../row.ts";

/** With one process the search for processes that have left counts most: it takes as long if there are none. */
const PROCESSES = [1, 2_000] as const;
/** Freezes for one value, one after the other. */
const TIMES = 8;
const STOP_LIMIT_MS = 60_000;

/**
 * A cgroup with another one in it, in which that many processes sleep: descendants of one that is outside, like the
 * launcher.
 */
class Herd implements AsyncDisposable {
  readonly path: string;
  readonly launcher: number;
  readonly #ended: Promise<unknown>;

  private constructor(path: string, launcher: ChildProcess) {
    this.path = path;
    this.launcher = launcher.pid ?? 0;
    this.#ended = once(launcher, "exit");
  }

  static async start(path: string, count: number): Promise<Herd> {
    mkdirSync(join(path, "command"), { recursive: true });
    const enter = `echo 0 > '${path}/command/cgroup.procs'`;
    const others = `i=1; while [ $i -lt ${count} ]; do sleep 100000 & i=$((i+1)); done`;
    const command = `${enter} && ${others}; echo up; exec sleep 100000`;
    const launcher = spawn("sh", ["-c", 'setsid sh -c "$0" & wait', command], { stdio: ["ignore", "pipe", "inherit"] });
    const herd = new Herd(path, launcher);
    await once(launcher.stdout, "data");
    return herd;
  }

  write(isFrozen: boolean): void {
    writeFileSync(join(this.path, "cgroup.freeze"), isFrozen ? "1" : "0");
  }

  /** Polls without a pause. */
  wait(event: "frozen 1" | "frozen 0" | "populated 0"): void {
    while (!readFileSync(join(this.path, "cgroup.events"), "utf8").includes(event));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    writeFileSync(join(this.path, "cgroup.kill"), "1");
    await this.#ended;
    this.wait("populated 0");
    rmdirSync(join(this.path, "command"));
    rmdirSync(this.path);
  }
}

/** What the agent does to freeze and thaw a session, beside a bare write to cgroup.freeze and a wait for its event. */
export async function freezeRows(bench: Bench): Promise<Row[]> {
  const [mount] = cgroupMounts();
  const rows: Row[] = [];
  if (mount === undefined) {
    bench.say("a frozen session is left out: there is no cgroup2 hierarchy");
    return rows;
  }
  const addon = loadAddon([dirname(bench.agentProgram)]);
  for (const count of PROCESSES) {
    const name = `freeze and thaw of ${count.toLocaleString("en")} ${count === 1 ? "process" : "processes"}`;
    bench.say(name);
    const group = `guest-agent-bench-${process.pid}`;
    await using herd = await Herd.start(join(mount, group), count);
    const folder = openSync(herd.path, "r");
    const session = new SessionCgroup({ addon, name: group, folder, launcher: herd.launcher });
    const [ours, bare]: [number[], number[]] = [[], []];
    for (let round = 0; round < bench.scale.rounds; round++) {
      bare.push(
        await msOf(() => {
          herd.write(true);
          herd.wait("frozen 1");
          herd.write(false);
          herd.wait("frozen 0");
        }),
      );
      ours.push(
        await msOf(async () => {
          const problem = session.freeze();
          if (problem !== undefined) throw new Error(`${name}: ${problem}`);
          await session.stopped(STOP_LIMIT_MS);
          if (session.size() !== count) throw new Error(`${name}: ${session.size()} are frozen`);
          session.thaw();
          herd.wait("frozen 0");
        }),
      );
    }
    closeSync(folder);
    const ratios = ours.map((value, round) => value / (bare[round] ?? 0));
    rows.push(
      makeRow({
        name: `${name}, times a bare write and wait`,
        unit: "x",
        samples: { ours: ratios },
        goal: { relation: "at most", limit: 1.5 },
        note: `${Math.min(...ours).toPrecision(3)} ms at best; bare ${Math.min(...bare).toPrecision(3)} ms`,
      }),
    );
  }
  return rows;
}

async function msOf(task: () => void | Promise<void>): Promise<number> {
  const began = performance.now();
  for (let time = 0; time < TIMES; time++) await task();
  return (performance.now() - began) / TIMES;
}
