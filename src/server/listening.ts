import type { ListenOptions, Server } from "node:net";

/** Resolves once the server listens; rejects with Node's error when it cannot. */
export function listening(server: Server, options: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
