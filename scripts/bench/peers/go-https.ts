import type { Starter } from "../contender.ts";
import { Load } from "../load.ts";
import { ServerProcess } from "./server-process.ts";

/** Starts the file server of Go's standard library. */
export const startGoHttps: Starter = async ({ program, credentialsFolder, token }) => {
  const server = new ServerProcess(program, ["serve-https", credentialsFolder, token]);
  const port = await server.firstLine();
  const load = new Load(program, ["https", `127.0.0.1:${port}`, credentialsFolder, token]);
  return {
    contender: "go-https",
    description: "files over HTTP/1.1 and TLS 1.3 by Go's standard library alone: io.Copy to and from the file",
    load,
    pids: () => [server.pid],
    [Symbol.asyncDispose]: async () => {
      load.close();
      await server[Symbol.asyncDispose]();
    },
  };
};
