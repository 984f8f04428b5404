import { create } from "@bufbuild/protobuf";
import type { FileSystemUsage, Usage, UsageReport } from "../../usage/index.ts";
import {
  FileSystemUsageSchema,
  GetUsageResponseSchema,
  type GuestUsage,
  GuestUsageSchema,
  MemoryUsageSchema,
  PressureSchema,
  UsageService,
  WatchUsageResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { messageFrame, timestamp } from "../codec.ts";
import type { Router } from "../router.ts";

/** Serves UsageService, which reports the guest's resource usage once (GetUsage) or at intervals (WatchUsage). */
export function serveUsage(router: Router, usage: Usage): void {
  router.unary(UsageService.method.getUsage, async () =>
    create(GetUsageResponseSchema, { usage: guestUsage(await usage.get()) }),
  );
  router.serverStream(UsageService.method.watchUsage, ({ intervalMs }, call) =>
    usage.watch(intervalMs, {
      isBehind: () => call.queuedBytes > 0,
      send: (report) => {
        const message = create(WatchUsageResponseSchema, { usage: guestUsage(report) });
        call.send(messageFrame(WatchUsageResponseSchema, message));
      },
      signal: call.signal,
    }),
  );
}

function guestUsage(report: UsageReport): GuestUsage {
  const { guestTimeNs, generation, uptimeUs, memory, cpu, pressure, fileSystems, networks } = report;
  const pressureOf = (kind: keyof typeof pressure) =>
    pressure[kind] && create(PressureSchema, counters(pressure[kind]));
  return create(GuestUsageSchema, {
    guestTime: timestamp(guestTimeNs),
    uptimeUs: counter(uptimeUs),
    generation,
    memory: memory && create(MemoryUsageSchema, counters(memory)),
    cpu: cpu && { count: cpu.count, busyUs: counter(cpu.busyUs), stealUs: counter(cpu.stealUs) },
    cpuPressure: pressureOf("cpu"),
    memoryPressure: pressureOf("memory"),
    ioPressure: pressureOf("io"),
    fileSystems: fileSystems.items.map(fileSystemUsage),
    fileSystemsTruncated: fileSystems.truncated,
    networks: networks.items.map(({ name, ...bytes }) => ({ name, ...counters(bytes) })),
    networksTruncated: networks.truncated,
    processes: report.processes,
    ...counters({ sessionOomKills: report.sessionOomKills }),
  });
}

function fileSystemUsage({ path, type, space }: FileSystemUsage) {
  const place = { path: Buffer.from(path).toString(), type };
  if (typeof space === "string") return create(FileSystemUsageSchema, { ...place, problem: space });
  const { inodes, freeInodes, ...bytes } = space;
  return create(FileSystemUsageSchema, {
    ...place,
    ...counters(bytes),
    ...(inodes > 0 && counters({ inodes, freeInodes })),
  });
}

/**
 * Converts a count for a protobuf field. A count above 2^53 - 1 becomes 2^53 - 1, because a file system may report any
 * number.
 */
function counter(value: number): bigint {
  return BigInt(Math.min(value, Number.MAX_SAFE_INTEGER));
}

/** Converts the values that are known, and leaves out the others. */
function counters<Name extends string>(values: Readonly<Record<Name, number | undefined>>): Record<Name, bigint> {
  const known = Object.entries<number | undefined>(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known.map(([name, value]) => [name, counter(value ?? 0)])) as Record<Name, bigint>;
}
