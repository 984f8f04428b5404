import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { GUEST_ARCHITECTURE } from "../../vm/harness/architecture.ts";
import { writeFolderDisk } from "../../vm/harness/disks.ts";
import { messageOf } from "../../../src/shared/errors.ts";
import { missingPrograms } from "../../../scripts/machine/programs.ts";
import { type GuestParts, prepareGuests } from "./guest.ts";
import { Images } from "./images.ts";
import { Ingresses } from "./ingresses.ts";
import { Instances } from "./instances.ts";
import { Machines } from "./machines.ts";
import { Proxy } from "./proxy.ts";
import { Records } from "./records.ts";
import { routesOf } from "./routes.ts";
import type { Rules } from "./rules.ts";
import { createApiServer } from "./server.ts";
import { Snapshots } from "./snapshots.ts";
import { upstreams } from "./upstreams.ts";
import { Volumes } from "./volumes.ts";

/** Longest path of a state folder: the paths of the sockets in it have at most 107 bytes (unix(7)). */
const LONGEST_PATH = 64;

/** Options of a daemon. */
export interface DaemonOptions {
  /** Folder of everything that the daemon keeps. */
  readonly stateFolder: string;
  /** On the loopback; 0: any free one. */
  readonly port: number;
  /** Root file systems that images are made of. */
  readonly imagesFolder?: string;
  readonly rules: Rules;
  readonly log: (line: string) => void;
}

/** The development substrate: serves the API for the machines of a state folder, which outlive it. */
export interface Daemon {
  readonly port: number;
  readonly tokenFile: string;
  /** Number of machines that run. */
  readonly runningCount: () => number;
  /** Takes no more calls, and resolves when it has answered those that it has. */
  readonly close: () => Promise<void>;
}

/** Starts a daemon: adopts machines that run, and listens. @throws Error where another has the folder or the port */
export async function startDaemon({ stateFolder, port, imagesFolder, rules, log }: DaemonOptions): Promise<Daemon> {
  const state = openState(stateFolder);
  const release = lock(state);
  try {
    const tokenFile = join(state, "token");
    if (!existsSync(tokenFile)) writeFileSync(tokenFile, randomBytes(24).toString("hex"), { mode: 0o600 });
    const images = new Images(
      new Records(join(state, "images")),
      imagesFolder === undefined ? undefined : resolve(imagesFolder),
      log,
    );
    const volumes = new Volumes(join(state, "volumes"), writeFolderDisk);
    const version = hypervisorVersion();
    let parts: Promise<GuestParts> | undefined;
    const guest = (): Promise<GuestParts> =>
      (parts ??= prepareGuests(join(state, "guest")).catch((error: unknown) => {
        // What was missing may be there at the next attempt.
        parts = undefined;
        throw error;
      }));
    const host = { images, volumes, version, guest, rules, log };
    const folder = join(state, "instances");
    const instances = new Instances(folder, await Machines.open(folder, host), host);
    const snapshots = new Snapshots(join(state, "snapshots"), instances);
    const proxy = rules.proxy ? new Proxy(upstreams(instances), log) : undefined;
    const nameOf = (reference: string): string => instances.get(reference).name;
    const ingresses = new Ingresses(join(state, "ingresses"), nameOf, proxy);
    await ingresses.serve().catch((error: unknown) => log(`ingresses are not served: ${messageOf(error)}`));
    const routes = routesOf({
      images,
      volumes,
      instances,
      snapshots,
      ingresses,
      version: `development-${version}`,
      rules,
    });
    const server = createApiServer(routes, readFileSync(tokenFile, "utf8").trim(), rules, log);
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    images.addAll();
    return {
      port: (server.address() as AddressInfo).port,
      tokenFile,
      runningCount: () => instances.runningCount,
      close: async () => {
        const closed = once(server, "close");
        server.close();
        server.closeIdleConnections();
        await Promise.all([closed, images.close(), proxy?.[Symbol.asyncDispose]()]);
        release();
      },
    };
  } catch (error) {
    release();
    throw error;
  }
}

/** Ends all machines of a state folder and removes it; returns their number. @throws Error if a daemon has it */
export async function purge(stateFolder: string): Promise<number> {
  if (!existsSync(stateFolder)) return 0;
  const state = openState(stateFolder);
  const release = lock(state);
  try {
    const count = await Machines.endAll(join(state, "instances"));
    rmSync(state, { recursive: true, force: true });
    return count;
  } finally {
    release();
  }
}

function openState(folder: string): string {
  const state = resolve(folder);
  if (Buffer.byteLength(state) > LONGEST_PATH)
    throw new Error(
      `the path of the state folder, ${state}, has more than ${LONGEST_PATH} bytes: name another one by --state`,
    );
  mkdirSync(state, { recursive: true, mode: 0o700 });
  chmodSync(state, 0o700);
  return state;
}

/** Keeps other daemons out until this process ends: however it ends, the kernel then drops SQLite's lock. */
function lock(state: string): () => void {
  const database = new DatabaseSync(join(state, "lock"));
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (error) {
    database.close();
    throw new Error(`another daemon has the state folder ${state}: end it, or name another folder by --state`, {
      cause: error,
    });
  }
  return () => database.close();
}

/** The version that instances are pinned to. Without QEMU nothing can be booted. */
function hypervisorVersion(): string {
  const { qemu } = GUEST_ARCHITECTURE;
  if (missingPrograms([qemu]).length > 0) return "without-qemu";
  const [line = ""] = execFileSync(qemu.name, ["--version"], { encoding: "utf8" }).split("\n");
  return line.replace(/^QEMU emulator version (\S+).*/, "qemu-$1");
}
