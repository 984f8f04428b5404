import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { spawn, spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { issueCertificates } from "../../../src/cli/credentials/index.ts";
import { NODE_FLAGS } from "./node-flags.ts";
import { freePort } from "../../machine/free-port.ts";

const HOUR_MS = 3_600_000;
/** On a busy machine a run now and then compiles a function more or less: what most of them compile is taken. */
const RUNS = 5;

/**
 * Makes the code cache of the agent's script by running it, on this machine and for its architecture: it starts a
 * workload and listens on every socket that it can have. `addonFolder` holds the addon.
 */
export async function makeCodeCache(script: string, addonFolder: string, output: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-warm-up-"));
  try {
    const environment = { ...(await agentEnvironment(folder)), GUEST_AGENT_DIR: addonFolder };
    const caches: Buffer[] = [];
    for (let run = 0; run < RUNS; run++) {
      rmSync(output, { force: true });
      const said = await runWarmUp([script, output], environment);
      if (!existsSync(output)) throw new Error(`the agent could not be run for its code cache:\n${said}`);
      caches.push(readFileSync(output));
    }
    writeFileSync(output, mostFrequent(caches));
    refuseUnfit(script, output);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function mostFrequent(caches: readonly Buffer[]): Buffer {
  const alike = caches.map((cache) => caches.filter((other) => other.equals(cache)).length);
  return caches[alike.indexOf(Math.max(...alike))] ?? Buffer.alloc(0);
}

/** V8 compares its flags: the cache of a run that changed one is of no use, and nothing but the time would tell. */
function refuseUnfit(script: string, output: string): void {
  const check = join(import.meta.dirname, "fits.ts");
  const { status } = spawnSync(process.execPath, [...NODE_FLAGS, check, script, output], { stdio: "inherit" });
  if (status !== 0)
    throw new Error("V8 refuses the agent's code cache: does the agent change V8's flags at its start?");
}

async function agentEnvironment(folder: string): Promise<Record<string, string>> {
  const now = Date.now();
  const { ca, server } = await issueCertificates("guest", {
    notBefore: new Date(now - HOUR_MS),
    notAfter: new Date(now + HOUR_MS),
  });
  const put = (name: string, text: string): string => {
    const file = join(folder, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };
  return {
    // Always the same: how long it is decides about what is compiled, and so about the bytes.
    PATH: "/usr/bin:/bin",
    SVC_INSTANCE_TOKEN: "warm-up",
    SVC_GUEST_PORT: String(await freePort()),
    SVC_TLS_CERT_FILE: put("server.pem", server.cert),
    SVC_TLS_KEY_FILE: put("server.key", server.key),
    SVC_TLS_CLIENT_CA_FILE: put("ca.pem", ca),
    SVC_GUEST_SOCKET: join(folder, "guest.sock"),
    SVC_WORKLOAD_SOCKET: join(folder, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify({ args: ["cat"] }),
    SVC_HOOKS_SPEC: "{}",
  };
}

/** A fixed seed makes the same bytes each time; other flags than the executable's would make the cache unfit for it. */
async function runWarmUp(args: readonly string[], environment: Record<string, string>): Promise<string> {
  const flags = [...NODE_FLAGS, "--random-seed=1"];
  const child = spawn(process.execPath, [...flags, join(import.meta.dirname, "warm-up.ts"), ...args], {
    env: environment,
    // The workload reads its standard input, and so ends with this process at the latest.
    stdio: ["pipe", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  await once(child, "close");
  return said;
}
