import { join } from "node:path";
import type { Starter } from "../contender.ts";
import { Load } from "../load.ts";
import { ServerProcess } from "./server-process.ts";

/** Of the built agent (scripts/package/bake.ts). */
const NODE_FLAGS = ["--max-semi-space-size=1", "--v8-pool-size=0"];

/** Starts the bare HTTP/2 server on the Node inside the built agent. */
export const startNodeHttp2: Starter = async ({ program, credentialsFolder, token }) => {
  const script = join(import.meta.dirname, "node-http2-server.ts");
  const server = new ServerProcess(process.execPath, [...NODE_FLAGS, script, credentialsFolder]);
  const port = await server.firstLine();
  const load = new Load(program, ["grpc", `127.0.0.1:${port}`, credentialsFolder, token]);
  return {
    contender: "node-http2",
    description: `a bare node:http2 server on Node ${process.versions.node}: fixed answers, no files, no checks`,
    load,
    pids: () => [server.pid],
    [Symbol.asyncDispose]: async () => {
      load.close();
      await server[Symbol.asyncDispose]();
    },
  };
};
