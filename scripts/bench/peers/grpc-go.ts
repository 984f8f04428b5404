import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Starter } from "../contender.ts";
import { Load } from "../load.ts";
import { ServerProcess } from "./server-process.ts";

/** Sources of the native program. */
export const GO_SOURCES: string = join(import.meta.dirname, "go");

/** Starts the server in Go. */
export const startGrpcGo: Starter = async ({ program, credentialsFolder, token }) => {
  const server = new ServerProcess(program, ["serve", credentialsFolder, token]);
  const port = await server.firstLine();
  const load = new Load(program, ["grpc", `127.0.0.1:${port}`, credentialsFolder, token]);
  const [, version = ""] =
    /google\.golang\.org\/grpc (v\S+)/.exec(readFileSync(join(GO_SOURCES, "go.mod"), "utf8")) ?? [];
  return {
    contender: "grpc-go",
    description: `a server of the same schema with grpc-go ${version}`,
    load,
    pids: () => [server.pid],
    [Symbol.asyncDispose]: async () => {
      load.close();
      await server[Symbol.asyncDispose]();
    },
  };
};
