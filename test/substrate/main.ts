/**
 * The development substrate: `npm run substrate`. Serves the part of the substrate's API that sandboxes need, on
 * localhost, with the QEMU of the tests.
 */
import { parseArgs } from "node:util";
import { onEndSignal, runScript, UsageError } from "../../scripts/machine/script.ts";
import { startDaemon } from "./double/daemon.ts";

const USUAL_PORT = 4973;

const USAGE = `usage: npm run substrate [-- [--port N] [--images DIR] [--patience N] [--boot-time TIME]]

A substrate for development, and for nothing else: guests are emulated or run in plain QEMU, on this machine and for whoever
is on it. It keeps to the API of hypeman 0.3.0 as far as sandboxes need it. Guests reach no network; the host reaches port
7071 of each at the address that the API tells, and what is published by ingresses, on the loopback. Ctrl-C ends all of it.

  --port N      on localhost; 0: any that is free (default: ${USUAL_PORT})
  --images DIR  root file systems: NAME/, and NAME.json with entrypoint, cmd, env, working_dir; "busybox" is always there
  --patience N  so many times the substrate's own limits (a stop 5 s, a delete 2 s, any call 60 s); default: 1
  --boot-time TIME
                time of every guest's real-time clock when it boots, as 1980-01-01T00:00:00; default: this machine's`;

const OPTIONS = {
  port: { type: "string", default: `${USUAL_PORT}` },
  images: { type: "string" },
  patience: { type: "string", default: "1" },
  "boot-time": { type: "string" },
} as const;

async function main(): Promise<number> {
  const { values } = parseArgs({ options: OPTIONS });
  if (!/^\d{1,5}$/.test(values.port) || Number(values.port) > 65535)
    throw new UsageError(`--port is a number from 0 to 65535, not "${values.port}"`);
  const patience = Number(values.patience);
  if (!(patience > 0)) throw new UsageError(`--patience is a number above 0, not "${values.patience}"`);
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  let signals = 0;
  // The second one ends the daemon at once.
  onEndSignal(() => (signals++ > 0 ? process.exit(1) : end()));
  const daemon = await startDaemon({
    port: Number(values.port),
    imagesDirectory: values.images,
    rules: {
      forks: "contract",
      patience,
      memoryBytes: undefined,
      scopes: undefined,
      bootTime: values["boot-time"],
    },
    log: (line) => console.error(`${new Date().toISOString()} ${line}`),
  });
  console.log(`The development substrate listens. For the client, in another terminal:
  export HYPEMAN_BASE_URL=http://localhost:${daemon.port} HYPEMAN_API_KEY="$(cat '${daemon.tokenFile}')"
Ctrl-C ends it, with all machines.`);
  await ended;
  await daemon.close();
  return 0;
}

await runScript("substrate", USAGE, main);
// Does not wait for connections that clients keep open.
process.exit();
