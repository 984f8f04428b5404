import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

interface Reply {
  readonly return?: unknown;
  readonly error?: { readonly desc: string };
}

/** QEMU's machine protocol (docs/interop/qmp-spec). */
export class Qmp implements Disposable {
  readonly #socket: Socket;
  readonly #waiting: ((reply: Reply) => void)[] = [];

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => undefined);
    createInterface({ input: socket })
      .on("line", (line) => {
        const reply = JSON.parse(line) as Reply;
        if ("return" in reply || "error" in reply) this.#waiting.shift()?.(reply);
      })
      // It reports the socket's error; the socket's end is noticed below.
      .on("error", () => undefined);
    socket.on("close", () => {
      for (const settle of this.#waiting.splice(0)) settle({ error: { desc: "QEMU is gone" } });
    });
  }

  /** Connects as soon as QEMU listens. Rejects with the signal's reason. */
  static async connect(path: string, signal: AbortSignal): Promise<Qmp> {
    for (;;) {
      signal.throwIfAborted();
      const socket = connect(path);
      try {
        await once(socket, "connect", { signal });
        const qmp = new Qmp(socket);
        await qmp.execute("qmp_capabilities");
        return qmp;
      } catch {
        socket.destroy();
        await pause(10);
      }
    }
  }

  async execute(command: string, args?: object): Promise<unknown> {
    const reply = await new Promise<Reply>((resolve) => {
      this.#waiting.push(resolve);
      this.#socket.write(`${JSON.stringify({ execute: command, arguments: args })}\n`);
    });
    if (reply.error !== undefined) throw new Error(`${command}: ${reply.error.desc}`);
    return reply.return;
  }

  /** Asks until the status is wanted. */
  async awaitStatus(command: string, wanted: (status: string) => boolean): Promise<string> {
    for (;;) {
      const { status = "" } = (await this.execute(command)) as { status?: string };
      if (wanted(status)) return status;
      await pause(5);
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}
