import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { COMPILED_ONCE } from "../../scripts/testing/compiled.ts";
import { awake } from "../fixtures/awake.ts";
import { cpuMsOf } from "../fixtures/proc.ts";
import type { NodeSideParts, NodeSideResult } from "./node-side.ts";

/** A node side in a process of its own. */
export class NodeSide implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #closed: Promise<unknown>;

  private constructor(parts: NodeSideParts) {
    const program = join(import.meta.dirname, "node-side.ts");
    const child = spawn(process.execPath, [...COMPILED_ONCE, program, JSON.stringify(parts)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#child = child;
    this.#closed = once(child, "close");
    this.#lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  }

  /** Opens the node; nothing is asked of the fleet before `begin`. */
  static async start(parts: NodeSideParts): Promise<NodeSide> {
    const side = new NodeSide(parts);
    await side.#line();
    return side;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Processor time that it has taken so far, in milliseconds. */
  cpuMs(): number {
    return cpuMsOf(this.pid);
  }

  begin(): void {
    this.#child.stdin?.write("begin\n");
  }

  /** Ends a watch. */
  end(): void {
    this.#child.stdin?.write("end\n");
  }

  /** Its result, when it has done its work. Rejects if it never does, with what it is doing then. */
  async done(): Promise<NodeSideResult> {
    return JSON.parse(
      await awake(this.#line(), () => `the node side was done: ${threadsOf(this.pid)}`),
    ) as NodeSideResult;
  }

  /** Ends it as a crash does. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }

  async #line(): Promise<string> {
    const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
    if (done === true) throw new Error("the node side has ended");
    return value;
  }
}

/** Lets a new node side do its work, and measures that. */
export async function measured(parts: NodeSideParts): Promise<NodeSideResult> {
  await using side = await NodeSide.start(parts);
  side.begin();
  return await side.done();
}

/** What each thread of a process waits for, and the process's cgroups: a throttled process does not run at all. */
function threadsOf(pid: number): string {
  try {
    const threads = readdirSync(`/proc/${pid}/task`).map((id) => {
      const read = (file: string): string => readFileSync(`/proc/${pid}/task/${id}/${file}`, "utf8").trim();
      return `${read("comm")} ${/^State:\s+(.*)$/m.exec(read("status"))?.[1]} in ${read("wchan")}`;
    });
    return [...threads, readFileSync(`/proc/${pid}/cgroup`, "utf8").trim()].join("\n");
  } catch (error) {
    return String(error);
  }
}
