/**
 * The development substrate: `npm run substrate`. Serves the part of the substrate's API that sandboxes need, on
 * localhost, with the QEMU of the tests. Its machines outlive it, and the next one adopts them; `--purge` ends them.
 */
import { homedir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { onEndSignal, runScript, UsageError } from "../../scripts/machine/script.ts";
import { type Daemon, purge, startDaemon } from "./double/daemon.ts";
import { bytesOf } from "./double/requests.ts";
import type { Rules } from "./double/rules.ts";
import { ALL_SCOPES } from "./double/scopes.ts";

const USUAL_PORT = 4973;
const USUAL_STATE = join(process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local", "state"), "guest-agent-substrate");

const USAGE = `usage: npm run substrate [-- [--port N] [--state DIR] [--images DIR] [RULES]]
       npm run substrate -- --purge [--state DIR]

A substrate for development, and for nothing else: guests are emulated or run in plain QEMU, on this machine and for whoever
is on it. It keeps to the API of hypeman 0.3.0 as far as sandboxes need it: images, volumes, instances, standby, snapshots,
forks, ingresses. Guests reach no network; the host reaches port 7071 of each at the address that the API tells, and what is
published by ingresses, on the loopback.

  --port N      on localhost; 0: any that is free (default: ${USUAL_PORT})
  --state DIR   everything that it keeps, mode 0700, and its token (default: ${USUAL_STATE})
  --images DIR  root file systems: NAME/, NAME.tar or NAME.tar.gz, and NAME.json with entrypoint, cmd, env, working_dir.
                "busybox" is always there
  --rules qemu  a fork of a snapshot or sleeper cannot run beside its source, as with the real one's QEMU; default:
                "contract", by which it can
  --memory SIZE of all machines together, such as 2GB: more is refused (insufficient_resources)
  --scopes LIST the token's, such as instance:read,image:read; default: all
  --no-capabilities
                there is no /capabilities, as before August 2026
  --no-proxy    ingresses are accepted, and nothing serves them
  --patience N  so many times the substrate's own limits (a stop 5 s, a delete 2 s, any call 60 s); default: 1
  --purge       ends all machines of the state folder, and removes it; no daemon may run on it

Machines go on when the daemon ends; the next one on the same folder adopts them.`;

const OPTIONS = {
  port: { type: "string", default: `${USUAL_PORT}` },
  state: { type: "string", default: USUAL_STATE },
  images: { type: "string" },
  rules: { type: "string", default: "contract" },
  memory: { type: "string" },
  scopes: { type: "string" },
  "no-capabilities": { type: "boolean", default: false },
  "no-proxy": { type: "boolean", default: false },
  patience: { type: "string", default: "1" },
  purge: { type: "boolean", default: false },
} as const;
type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS }>>["values"];

async function main(): Promise<number> {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.purge) {
    const count = await purge(values.state);
    console.log(`${count} machines ended, and ${values.state} is removed`);
    return 0;
  }
  if (!/^\d{1,5}$/.test(values.port) || Number(values.port) > 65535)
    throw new UsageError(`--port is a number from 0 to 65535, not "${values.port}"`);
  const daemon = await startDaemon({
    stateFolder: values.state,
    port: Number(values.port),
    ...(values.images !== undefined && { imagesFolder: values.images }),
    rules: rulesOf(values),
    log: (line) => console.error(`${new Date().toISOString()} ${line}`),
  });
  console.log(`The development substrate listens. For the client, in another terminal:
  export HYPEMAN_BASE_URL=http://localhost:${daemon.port} HYPEMAN_API_KEY="$(cat '${daemon.tokenFile}')"
Ctrl-C ends it; machines go on. npm run substrate -- --purge --state '${values.state}' ends them, too.`);
  await ended(daemon);
  return 0;
}

function rulesOf(values: Values): Rules {
  const { rules, memory } = values;
  if (rules !== "contract" && rules !== "qemu") throw new UsageError(`--rules is contract or qemu, not "${rules}"`);
  const memoryBytes = memory === undefined ? undefined : bytesOf(memory);
  if (Number.isNaN(memoryBytes)) throw new UsageError(`--memory is a size such as 2GB, not "${memory}"`);
  const scopes = values.scopes?.split(",");
  const unknown = scopes?.find((scope) => !ALL_SCOPES.has(scope));
  if (unknown !== undefined) throw new UsageError(`--scopes: there is no "${unknown}"; ${[...ALL_SCOPES].join(", ")}`);
  const patience = Number(values.patience);
  if (!(patience > 0)) throw new UsageError(`--patience is a number above 0, not "${values.patience}"`);
  return {
    forks: rules,
    patience,
    memoryBytes,
    capabilities: !values["no-capabilities"],
    proxy: !values["no-proxy"],
    scopes: scopes && new Set(scopes),
  };
}

/** The first signal ends the daemon once it has answered its calls, the second at once. */
async function ended(daemon: Daemon): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let count = 0;
  onEndSignal(() => {
    count += 1;
    if (count > 1) process.exit(1);
    resolve();
  });
  await promise;
  await daemon.close();
  console.error(`ended; machines that go on: ${daemon.runningCount()}`);
}

await runScript("substrate", USAGE, main);
// Does not wait for connections that clients keep open.
process.exit();
