import { readdirSync } from "node:fs";
import { join } from "node:path";

import type { RunningAgent } from "../fixtures/agent.ts";
import type { Sandbox } from "./sandbox.ts";

/** What the agent has been given by its host; never its own. */
const GIVEN = new Set(["ca.pem", "server.pem", "server.key", "client.pem", "client.key", "token"]);
/** The layer has a copy of it where something was made in it, even if that is gone again: a random device, for example. */
const FOLDER_OF_IMAGE = "dev";

/**
 * Every file, link, socket and folder that was made or changed below the sandbox's root since it was entered, sorted. What
 * is mounted at /tmp is looked into too. The way to the agent's credentials was made for it.
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
