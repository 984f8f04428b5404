import { type Bench, sideBySide } from "../bench.ts";
import { makeRow, type Row, samplesOf } from "../row.ts";

/** The smallest call. */
export async function healthRows(bench: Bench): Promise<Row[]> {
  const calls = bench.scale.healthCalls;
  const repetition = { name: "Health", contenders: ["ours", "grpc-go", "node-http2", "qemu-ga"] } as const;
  const runs = await sideBySide(bench, repetition, () => ({ kind: "ping", count: calls }));
  return [
    makeRow({
      name: "Health p50",
      unit: "µs",
      samples: samplesOf(runs, ({ latency }) => latency.p50Us),
      goals: [{ peer: "grpc-go", relation: "at most", limit: 0.9 }],
      note: "qemu-ga: guest-ping over a unix socket, without TLS",
    }),
    makeRow({ name: "Health p99", unit: "µs", samples: samplesOf(runs, ({ latency }) => latency.p99Us) }),
    makeRow({
      name: "CPU of 1,000 Health calls",
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs, operations }) => (cpuMs / operations) * 1_000),
      goals: [{ peer: "grpc-go", relation: "at most", limit: 0.7 }],
    }),
  ];
}
