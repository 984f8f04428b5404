import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Unix sockets before the suite's ports: the library dials ports over TLS only. */
export class SocketRelays implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "conformance-"));
  readonly #paths = new Map<string, Promise<string>>();
  readonly #open = new Set<() => void>();

  /** The path of the socket. It passes bytes and ends on, in both directions and apart from each other. */
  socketBefore(host: string, port: number): Promise<string> {
    const name = `${host}-${port}`;
    const known = this.#paths.get(name);
    if (known !== undefined) return known;
    const made = this.#listen(join(this.#folder, String(this.#paths.size)), host, port);
    this.#paths.set(name, made);
    return made;
  }

  [Symbol.dispose](): void {
    for (const close of this.#open) close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #listen(path: string, host: string, port: number): Promise<string> {
    const server = createServer({ allowHalfOpen: true }, (client) => {
      const far = connect({ host, port, allowHalfOpen: true, noDelay: true });
      for (const [socket, other] of [
        [client, far],
        [far, client],
      ] as const) {
        const close = (): void => void socket.destroy();
        this.#open.add(close);
        socket.on("error", () => other.destroy());
        socket.on("close", () => {
          this.#open.delete(close);
          other.destroy();
        });
      }
      client.pipe(far).pipe(client);
    }).listen(path);
    this.#open.add(() => void server.close());
    await once(server, "listening");
    return path;
  }
}
