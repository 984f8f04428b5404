import { dirname, join } from "node:path";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { makeGuestctl } from "../../../scripts/package/guestctl.ts";
import { type Bench, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import { LineProcess } from "../line-process.ts";
import type { Contender, Row } from "../row.ts";
import { latencyRows } from "./calls.ts";
import { type TransferGoals, transferRows } from "./streams.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const CHUNK_BYTES = 64 * 1024;
const CONTENDERS = ["ours", "openssh"] as const;
const DIRECTIONS = [
  ["out of a port", "tunnel-out"],
  ["into a port", "tunnel-in"],
] as const;
/** Tool beside tool, as users run them: `guestctl forward` and `ssh -L`, each as it comes. */
const GOALS: TransferGoals = { peer: "openssh", throughput: 1.5, cpu: 0.7 };
const NOTE = "guestctl forward beside ssh -L with its default cipher; CPU: the agent's and sshd's";

/** A tunnel's bytes at speed, out of the guest and into it, and one byte there and back. */
export async function tunnelRows(bench: Bench): Promise<Row[]> {
  const guestctl = join(bench.folder, "guestctl");
  await makeGuestctl(ROOT, guestctl);
  await using tools = await startTools(bench, guestctl);
  const rows: Row[] = [];
  for (const [direction, kind] of DIRECTIONS) {
    const name = `tunnel ${direction}`;
    const job: Job = { kind, totalBytes: bench.scale.streamBytes, chunkBytes: CHUNK_BYTES, probe: true };
    const runs = await sideBySide(bench, { name, contenders: CONTENDERS }, (contender) =>
      tools.through(contender, job),
    );
    rows.push(...transferRows(name, GOALS, runs, NOTE));
  }
  return [...rows, ...(await echoRows(bench, tools))];
}

async function echoRows(bench: Bench, tools: Tools): Promise<Row[]> {
  const name = "one byte through a tunnel and back";
  const runs = await sideBySide(bench, { name, contenders: CONTENDERS }, (contender) =>
    tools.through(contender, { kind: "tunnel-echo", count: bench.scale.roundTrips }),
  );
  for (const contender of CONTENDERS) await bench.contenders.get(contender)?.load.run({ kind: "release" });
  return latencyRows(`${name},`, runs);
}

interface Tools extends AsyncDisposable {
  /** The job, through the contender's tool. */
  readonly through: (contender: Contender, job: Job) => Job;
}

/** Starts the tool of each contender. All run to the end, so that none begins with a handshake. */
async function startTools({ contenders }: Bench, guestctl: string): Promise<Tools> {
  await using starting = new AsyncDisposableStack();
  const ports = new Map<Contender, number>();
  // guestctl runs with the Node in PATH; here with the project's.
  const environment = `PATH=${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;
  for (const contender of CONTENDERS) {
    const running = contenders.get(contender);
    if (running?.tool === undefined) continue;
    const [local, behind] = [await freePort(), await freePort()];
    await running.load.run({ kind: "tunnel-serve", port: behind });
    const forward =
      contender === "ours" ? ["forward", `${local}:${behind}`] : ["-N", "-L", `127.0.0.1:${local}:127.0.0.1:${behind}`];
    const command = running.tool(join(guestctl, "guestctl"));
    const tool = starting.use(new LineProcess("env", environment, ...command, ...forward));
    await tool.untilListening(local);
    ports.set(contender, local);
  }
  const started = starting.move();
  return {
    through: (contender, job) => ({ ...job, port: ports.get(contender) ?? 0 }),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}
