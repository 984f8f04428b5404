import { readdirSync } from "node:fs";
import { join } from "node:path";

import type { RunningAgent } from "../fixtures/agent.ts";
import type { Sandbox } from "./sandbox.ts";

/** Files that the host gives the agent. */
const GIVEN = new Set(["ca.pem", "server.pem", "server.key", "client.pem", "client.key", "token"]);
/** The layer has a copy of it if something was made in it, even temporarily: a random device, for example. */
const FOLDER_OF_IMAGE = "dev";

/**
 * Every file, link, socket and folder that was made or changed below the sandbox's root since it was entered, sorted.
 * Includes what is mounted at /tmp. The folders that lead to the credentials were made for the agent.
 */
export function writtenBy(agent: RunningAgent, { upper, root }: Sandbox): string[] {
  // unshare(1) itself stays outside of the root, and sees the layers as well.
  const view = join("/proc", String(agent.pid), "root");
  const layer = entriesOf(join(view, upper)).filter((path) => path !== FOLDER_OF_IMAGE);
  const temporary = entriesOf(join(view, root, "tmp")).map((path) => join("tmp", path));
  const own = agent.credentialsDir.slice(1);
  return [...layer, ...temporary]
    .filter((path) => !`${own}/`.startsWith(`${path}/`))
    .filter((path) => !(path.startsWith(own) && GIVEN.has(path.slice(own.length + 1))))
    .map((path) => `/${path}`)
    .toSorted();
}

function entriesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true }) as string[];
}
