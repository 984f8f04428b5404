/**
 * The development substrate: `npm run substrate`. Serves the part of the substrate's API that sandboxes need, on localhost,
 * with the QEMU of the tests. Its machines outlive it, and the next one adopts them; `--purge` ends them.
 */
import { homedir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { onEndSignal, runScript, UsageError } from "./machine/script.ts";
import { type Daemon, purge, startDaemon } from "./substrate/daemon.ts";

const USUAL_PORT = 4973;
const USUAL_STATE = join(process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local", "state"), "guest-agent-substrate");

const USAGE = `usage: npm run substrate [-- [--port N] [--state DIR] [--images DIR]]
       npm run substrate -- --purge [--state DIR]

A substrate for development, and for nothing else: guests are emulated or run in plain QEMU, on this machine and for whoever
is on it. It keeps to the API of hypeman 0.3.0 as far as sandboxes need it: images, volumes, instances, standby, snapshots,
forks. Guests reach no network; the host reaches port 7071 of each at the address that the API tells.

  --port N      on localhost; 0: any that is free (default: ${USUAL_PORT})
  --state DIR   everything that it keeps, mode 0700, and its token (default: ${USUAL_STATE})
  --images DIR  root file systems: NAME/, NAME.tar or NAME.tar.gz, and NAME.json with entrypoint, cmd, env, working_dir.
                "busybox" is always there
  --purge       ends all machines of the state folder, and removes it; no daemon may run on it

Machines go on when the daemon ends; the next one on the same folder adopts them.`;

const OPTIONS = {
  port: { type: "string", default: `${USUAL_PORT}` },
  state: { type: "string", default: USUAL_STATE },
  images: { type: "string" },
  purge: { type: "boolean", default: false },
} as const;

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
    log: (line) => console.error(`${new Date().toISOString()} ${line}`),
  });
  console.log(`The development substrate listens. For the client, in another terminal:
  export HYPEMAN_BASE_URL=http://localhost:${daemon.port} HYPEMAN_API_KEY="$(cat '${daemon.tokenFile}')"
Ctrl-C ends it; machines go on. npm run substrate -- --purge --state '${values.state}' ends them, too.`);
  await ended(daemon);
  return 0;
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
