import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { execa } from "execa";

const LOOK_MS = 20;
/** From SIGTERM to SIGKILL. */
const STOP_LIMIT_MS = 2_000;

function start(file: string, args: readonly string[]) {
  return execa(file, args, { buffer: { stdout: false }, reject: false, forceKillAfterDelay: STOP_LIMIT_MS });
}

/** A program of the bench that takes and prints lines. It ends with this process at the latest. */
export class LineProcess implements AsyncDisposable {
  readonly #file: string;
  readonly #process: ReturnType<typeof start>;
  readonly #lines: AsyncIterator<string>;

  constructor(file: string, ...args: string[]) {
    this.#file = file;
    this.#process = start(file, args);
    this.#lines = this.#process.iterable()[Symbol.asyncIterator]();
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** The next line that it prints; throws its standard error if it has ended instead. */
  async line(): Promise<string> {
    const next = await this.#lines.next();
    return next.done === true ? this.#throwEnd() : next.value;
  }

  /** Sends it a line. */
  send(line: string): void {
    this.#process.stdin.write(`${line}\n`);
  }

  /** Resolves once `isUp` holds; throws when it has ended instead. */
  async until(isUp: () => boolean | Promise<boolean>): Promise<void> {
    const ended = this.#throwEnd();
    // Once `isUp` holds, nobody awaits this promise.
    ended.catch(() => {});
    while (!(await isUp())) await Promise.race([ended, delay(LOOK_MS)]);
  }

  /** Resolves once something listens on a port of the loopback; throws when it has ended instead. */
  untilListening(port: number): Promise<void> {
    return this.until(() =>
      accepted(port).then(
        () => true,
        () => false,
      ),
    );
  }

  /** Ends it; if that takes long, by SIGKILL. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill();
    await this.#process;
  }

  async #throwEnd(): Promise<never> {
    const { stderr, shortMessage } = await this.#process;
    throw new Error(`${this.#file} ended: ${stderr.trim() || shortMessage}`);
  }
}

/** Connects to a port and leaves. */
export async function accepted(port: number): Promise<void> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
}
