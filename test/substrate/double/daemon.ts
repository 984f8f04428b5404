import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { missingPrograms } from "../../../scripts/machine/programs.ts";
import { GUEST_ARCHITECTURE } from "../../vm/harness/architecture.ts";
import { writeDirectoryDisk } from "../../vm/harness/guest-files.ts";
import { type GuestParts, prepareGuests } from "./guest.ts";
import { Images } from "./images.ts";
import { Ingresses } from "./ingresses.ts";
import { Instances } from "./instances.ts";
import { Machines } from "./machines.ts";
import { Proxy, upstreams } from "./proxy.ts";
import { Records } from "./records.ts";
import { routesOf } from "./routes.ts";
import type { Rules } from "./rules.ts";
import { createApiServer } from "./server.ts";
import { Snapshots } from "./snapshots.ts";
import { Volumes } from "./volumes.ts";

/** Options of a daemon. */
export interface DaemonOptions {
  /** On the loopback; 0: any free one. */
  readonly port: number;
  /** Root file systems that images are made of. */
  readonly imagesDirectory: string | undefined;
  readonly rules: Rules;
  readonly log: (line: string) => void;
}

/** The development substrate with QEMU's machines. */
export interface Daemon {
  readonly port: number;
  readonly tokenFile: string;
  /** Answers the calls that it has, ends all machines, and removes everything. */
  readonly close: () => Promise<void>;
}

/** Starts a daemon. @throws Error where another has the port */
export async function startDaemon({ port, imagesDirectory, rules, log }: DaemonOptions): Promise<Daemon> {
  const state = mkdtempSync(join(tmpdir(), "substrate-"));
  const token = randomBytes(24).toString("hex");
  const tokenFile = join(state, "token");
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const images = new Images(new Records(join(state, "images")), imagesDirectory && resolve(imagesDirectory), log);
  const volumes = new Volumes(join(state, "volumes"), writeDirectoryDisk);
  const version = hypervisorVersion();
  let parts: Promise<GuestParts> | undefined;
  const guest = (): Promise<GuestParts> =>
    (parts ??= prepareGuests(join(state, "guest")).catch((error: unknown) => {
      // What was missing may be there at the next attempt.
      parts = undefined;
      throw error;
    }));
  const host = { images, volumes, guest, rules, log };
  const directory = join(state, "instances");
  const instances = new Instances(directory, new Machines(directory, host), host);
  const snapshots = new Snapshots(join(state, "snapshots"), instances);
  const proxy = new Proxy(upstreams(instances), log);
  const nameOf = (reference: string): string => instances.get(reference).name;
  const ingresses = new Ingresses(join(state, "ingresses"), nameOf, proxy);
  const holdings = { images, volumes, instances, snapshots, ingresses, version: `development-${version}`, rules };
  const server = createApiServer(routesOf(holdings), token, rules, log);
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  images.addAll();
  return {
    port: (server.address() as AddressInfo).port,
    tokenFile,
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeIdleConnections();
      await Promise.all([closed, images.close(), proxy[Symbol.asyncDispose]()]);
      await instances.machines.endAll();
      rmSync(state, { recursive: true, force: true });
    },
  };
}

/** The version that instances are pinned to. Without QEMU nothing can be booted. */
function hypervisorVersion(): string {
  const { qemu } = GUEST_ARCHITECTURE;
  if (missingPrograms([qemu]).length > 0) return "without-qemu";
  const [line = ""] = execFileSync(qemu.name, ["--version"], { encoding: "utf8" }).split("\n");
  return line.replace(/^QEMU emulator version (\S+).*/, "qemu-$1");
}
