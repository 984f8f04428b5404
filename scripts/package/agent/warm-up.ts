/**
 * Runs the agent's script until it listens, and writes the code cache of what was compiled until then. A process of its
 * own, with the flags of the executable. Usage: node warm-up.ts SCRIPT OUTPUT, with the agent's environment.
 */
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { compileAgent, runAgent } from "./compile.ts";

const RETRY_MS = 20;
const LIMIT_MS = 60_000;

async function isListening(path: string): Promise<boolean> {
  const probe = connect(path);
  try {
    await once(probe, "connect");
    return true;
  } catch {
    return false;
  } finally {
    probe.destroy();
  }
}

// A full collection notes on each function how long ago it ran, and when there is one is chance: the bytes would differ.
setFlagsFromString("--no-flush-bytecode");
const [script = "", output = ""] = process.argv.splice(2);
const socket = process.env["SVC_GUEST_SOCKET"] ?? "";
const agent = compileAgent(readFileSync(script, "latin1"));
runAgent(agent, createRequire(import.meta.url), script, dirname(script));
const lastTry = Date.now() + LIMIT_MS;
while (!(await isListening(socket))) {
  if (Date.now() > lastTry) throw new Error("the agent does not listen");
  await delay(RETRY_MS);
}
// The flags are a part of the cache.
setFlagsFromString("--flush-bytecode");
writeFileSync(output, agent.createCachedData());
// The agent leaves in order, and gives back what it has set up in the machine.
process.kill(process.pid, "SIGTERM");
