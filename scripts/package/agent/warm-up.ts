/**
 * Runs the agent's script until it has answered its first calls. Writes the functions that were called, as a JSON list
 * of their offsets in the script. Usage, with the executable's flags and the agent's environment: node warm-up.ts
 * SCRIPT OUTPUT
 */
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { dirname } from "node:path";
import timers, { setTimeout as delay } from "node:timers/promises";
import { connect as connectClient, type GuestClient } from "../../../src/node/client/index.ts";
import { AGENT_URL, compileAgent, runAgent } from "./compile.ts";

const RETRY_MS = 20;
const LOOK_MS = 5;
const LIMIT_MS = 60_000;
/** Longer than the agent's pause after a reading of /proc, even on a busy machine (processes/process-readings.ts). */
const LONG_MS = 1_000;
/** The agent waits that long for a first call before it does its deferred work (boot/agent.ts). */
const DEFERRED_MS = 500;
/** Longer than any run. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * Prevents long timers from firing, because otherwise the duration of the run would decide which functions are called.
 * The imports of this file keep the real timers.
 */
function holdLongTimers(): void {
  const start = globalThis.setTimeout;
  const never = (): void => {};
  globalThis.setTimeout = Object.assign(
    (task: () => void, delayMs = 0, ...args: []) => start(delayMs < LONG_MS ? task : never, delayMs, ...args),
    start,
  );
  timers.setTimeout = (delayMs = 0, ...rest) => delay(delayMs < DEFERRED_MS ? delayMs : NEVER_MS, ...rest);
}

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

/** The first call of a workload, in the form in which curl makes it. */
async function declareIdle(path: string): Promise<void> {
  const request = "POST /svc.guest.v1alpha1.WorkloadService/DeclareIdle HTTP/1.1";
  const fields = ["Host: localhost", "Accept: */*", "Content-Type: application/json", "Content-Length: 2"];
  const client = connect(path, () => client.write([request, ...fields, "", "{}"].join("\r\n")));
  await once(client.resume(), "close");
}

/**
 * Makes the calls with which every sandbox begins, a Health and a command, to an agent in this process. Uses a unix
 * socket, because a builder may have no network. Resolves with the client, which is still connected, as soon as these
 * calls no longer make the agent read files.
 */
async function firstCalls(socket: string, token: string): Promise<GuestClient> {
  const client = connectClient({ address: `unix:${socket}`, token });
  await client.health();
  // The streams end before the command, so that every run calls the same functions and the cache has the same bytes.
  const command = client.start(["/bin/sh", "-c", "exec >&- 2>&-; read line"], { stdin: true });
  command.stdout.resume();
  command.stderr.resume();
  const standardError = `/proc/${await command.started}/fd/2`;
  while (existsSync(standardError)) await delay(LOOK_MS);
  await client.health();
  command.stdin.end();
  await command.wait();
  do await delay(LOOK_MS);
  while (process.getActiveResourcesInfo().some((request) => request.startsWith("FSReq")));
  return client;
}

const [script = "", output = ""] = process.argv.splice(2);
const { SVC_GUEST_SOCKET: socket = "", SVC_WORKLOAD_SOCKET: workloadSocket = "" } = process.env;
const { SVC_INSTANCE_TOKEN: token = "" } = process.env;
const inspector = new Session();
inspector.connect();
await inspector.post("Profiler.enable");
await inspector.post("Profiler.startPreciseCoverage", { callCount: false, detailed: false });
holdLongTimers();
runAgent(compileAgent(readFileSync(script, "latin1")), createRequire(import.meta.url), script, dirname(script));
const lastTry = Date.now() + LIMIT_MS;
while (!(await isListening(socket))) {
  if (Date.now() > lastTry) throw new Error("the agent does not listen");
  await delay(RETRY_MS);
}
await declareIdle(workloadSocket);
const client = await firstCalls(socket, token);
const { result } = await inspector.post("Profiler.takePreciseCoverage");
const ofAgent = result.filter(({ url }) => url === AGENT_URL).flatMap(({ functions }) => functions);
const called = ofAgent.flatMap(({ ranges: [whole] }) => (whole && whole.count > 0 ? [whole.startOffset] : []));
writeFileSync(output, JSON.stringify(called));
client.close();
// The agent ends in the regular way, so that it removes its sockets and cgroups.
process.kill(process.pid, "SIGTERM");
