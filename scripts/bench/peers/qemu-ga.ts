import { existsSync } from "node:fs";
import { join } from "node:path";
import { execaSync } from "execa";
import type { Starter } from "../contender.ts";
import { Load } from "../load.ts";
import { ServerProcess } from "./server-process.ts";

const QEMU_GA = "/usr/sbin/qemu-ga";

/** Starts QEMU's guest agent on a socket of its own. */
export const startQemuGa: Starter = async ({ program, folder }) => {
  if (!existsSync(QEMU_GA)) return "QEMU's guest agent is missing (Debian: qemu-guest-agent)";
  const socket = join(folder, "qemu-ga.sock");
  const server = new ServerProcess(QEMU_GA, ["-m", "unix-listen", "-p", socket, "-t", folder]);
  await server.until(() => existsSync(socket));
  const load = new Load(program, ["qga", socket]);
  return {
    contender: "qemu-ga",
    description: `${execaSync(QEMU_GA, ["--version"]).stdout} over its socket: no TLS, one command at a time`,
    load,
    pids: () => [server.pid],
    [Symbol.asyncDispose]: async () => {
      load.close();
      await server[Symbol.asyncDispose]();
    },
  };
};
