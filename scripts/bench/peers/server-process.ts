import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** A peer's server, which ends with this process at the latest. */
export class ServerProcess implements AsyncDisposable {
  readonly child: ChildProcess;
  readonly #ended: Promise<unknown>;
  #complaints = "";

  constructor(command: string, args: readonly string[]) {
    this.child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    running.add(this.child);
    this.#ended = once(this.child, "exit");
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.#complaints += text));
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** The first line that it prints. */
  async firstLine(): Promise<string> {
    const { stdout } = this.child;
    if (stdout === null) throw new Error("no standard output");
    for await (const line of createInterface({ input: stdout })) return line;
    throw new Error(`the peer ended: ${this.#complaints.trim()}`);
  }

  /** Resolves once `isUp` holds; throws when the server has ended instead. */
  async until(isUp: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await isUp())) {
      if (this.child.exitCode !== null) throw new Error(`the peer ended: ${this.#complaints.trim()}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill("SIGTERM");
    const late = setTimeout(() => this.child.kill("SIGKILL"), 2_000);
    await this.#ended;
    clearTimeout(late);
    running.delete(this.child);
  }
}
