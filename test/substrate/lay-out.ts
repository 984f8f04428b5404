import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { InstanceRecord } from "./double/instance.ts";
import { RECORD } from "./double/records.ts";

/** Puts an instance in place, stopped or on standby, as an earlier daemon would leave it. */
export function layOut(state: string, id: string, differences: Partial<InstanceRecord>, hasMemory = false): void {
  const record: InstanceRecord = {
    id,
    name: `box-${id}`,
    image: "docker.io/library/busybox:latest",
    created_at: "2026-01-01T00:00:00.000Z",
    env: {},
    tags: {},
    volumes: [],
    network: { enabled: true, name: "default", ip: "127.64.0.1", mac: "02:00:00:00:00:01" },
    vcpus: 1,
    size: "1.0 GB",
    overlay_size: "1.0 GB",
    own: {
      command: {},
      memoryBytes: 2 ** 30,
      skipGuestAgent: false,
      imageDigest: `sha256:${"0".repeat(64)}`,
      imageId: "gone",
      pinned: { version: "QEMU 0.0.0", kernelImage: "/nowhere", accelerator: "tcg" },
      isContinued: false,
    },
    ...differences,
  };
  const folder = join(state, "instances", id);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, RECORD), JSON.stringify(record));
  if (hasMemory) writeFileSync(join(folder, "memory"), "of a guest");
}
