import { readFileSync } from "node:fs";
import { execa } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { providePrograms } from "../../../scripts/machine/programs.ts";
import { type Bench, makeTool, sideBySide } from "../bench.ts";
import type { JobResult } from "../contender.ts";
import { LineProcess } from "../line-process.ts";
import type { Contender, Row } from "../row.ts";
import { type TransferGoals, transferRows } from "./streams.ts";

const CHUNK_BYTES = 64 * 1024;
/** An emergency brake: it takes seconds. */
const LIMIT_MS = 120_000;
const CONTENDERS = ["ours", "openssh"] as const;
/** The server behind the tunnel sends, or receives. */
const DIRECTIONS = [
  ["out of a port", ["--reverse"]],
  ["into a port", []],
] as const;
/** Tool beside tool, as users run them: `guestctl forward` and `ssh -L`, each as it comes. */
const GOALS: TransferGoals = { peer: "openssh", throughput: 1.5, cpu: 0.7 };
const NOTE = "iperf3 over guestctl forward, and over ssh -L with its default cipher; CPU: the agent's and sshd's";

/** What iperf3 --json prints, as far as it is read. */
interface Iperf3 {
  readonly error?: string;
  readonly end: { readonly sum_received: { readonly bytes: number; readonly seconds: number } };
}

/** A tunnel's bytes at speed, out of the guest and into it, by iperf3. No rows without it. */
export async function tunnelRows(bench: Bench): Promise<Row[]> {
  if (providePrograms([{ name: "iperf3", package: "iperf3" }], "for tunnels").length > 0) return [];
  await using tools = new AsyncDisposableStack();
  const behind = await freePort();
  const server = tools.use(new LineProcess("iperf3", "--server", "--bind", "127.0.0.1", "--port", String(behind)));
  await server.until(() => isListening(behind));
  const ports = new Map<Contender, number>();
  const { guestctl, PATH } = await makeTool(bench);
  for (const contender of CONTENDERS) {
    const running = bench.contenders.get(contender);
    if (running?.tool === undefined) continue;
    const local = await freePort();
    const forward =
      contender === "ours" ? ["forward", `${local}:${behind}`] : ["-N", "-L", `127.0.0.1:${local}:127.0.0.1:${behind}`];
    const command = running.tool(guestctl);
    const tool = tools.use(new LineProcess("env", `PATH=${PATH}`, ...command, ...forward));
    await tool.until(() => isListening(local));
    ports.set(contender, local);
  }
  const rows: Row[] = [];
  for (const [direction, options] of DIRECTIONS) {
    const name = `tunnel ${direction}`;
    const runs = await sideBySide(
      bench,
      { name, contenders: CONTENDERS },
      (contender) => () => carried(ports.get(contender) ?? 0, bench.scale.streamBytes, options),
    );
    rows.push(...transferRows(name, GOALS, runs, NOTE));
  }
  return rows;
}

/** A connection that only looks would be a test to iperf3. */
function isListening(port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return readFileSync("/proc/net/tcp", "latin1").includes(`${local} 00000000:0000 0A`);
}

/** Sends so many bytes through the tunnel that begins at a port here. */
async function carried(port: number, totalBytes: number, options: readonly string[]): Promise<JobResult> {
  const sizes = ["--bytes", String(totalBytes), "--length", String(CHUNK_BYTES)];
  const words = ["--client", "127.0.0.1", "--port", String(port), "--json", ...sizes, ...options];
  const { stdout } = await execa("iperf3", words, { reject: false, timeout: LIMIT_MS });
  const { error, end } = JSON.parse(stdout) as Iperf3;
  if (error !== undefined) throw new Error(`iperf3: ${error}`);
  return { seconds: end.sum_received.seconds, operations: 1, bytes: end.sum_received.bytes };
}
