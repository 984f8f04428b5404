import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoSuite } from "../go.ts";
import type { Failure, Outcome, Suite } from "../suite.ts";

const MODULE = "connectrpc.com/conformance";
const BUF = join(import.meta.dirname, "../../../node_modules/.bin/buf");
const SERVER = join(import.meta.dirname, "server.ts");
/** An emergency brake: it takes seconds. */
const RUN_LIMIT_MS = 300_000;

/** What the agent offers: gRPC with uncompressed protobuf over HTTP/2; TLS only with client certificates. */
const FEATURES = {
  features: {
    versions: ["HTTP_VERSION_2"],
    protocols: ["PROTOCOL_GRPC"],
    codecs: ["CODEC_PROTO"],
    compressions: ["COMPRESSION_IDENTITY"],
    supportsTls: true,
    supportsTlsClientCerts: true,
  },
  excludeCases: [{ useTls: true, useTlsClientCerts: false }],
};

/** connectconformance in server mode. */
export const CONNECTCONFORMANCE: Suite = {
  name: "connectconformance",
  about: "gRPC of the agent's HTTP/2, TLS and gRPC, by connectrpc.com/conformance",
  cases: 199,
  differences: {},
  run: async () => {
    const { program, version, sources } = await buildGoSuite(
      import.meta.dirname,
      MODULE,
      `${MODULE}/cmd/connectconformance`,
    );
    const folder = await mkdtemp(join(tmpdir(), "conformance-"));
    try {
      const descriptors = join(folder, "descriptors.binpb");
      await execa(BUF, ["build", join(await sources(), "proto"), "-o", descriptors]);
      // JSON is YAML.
      const features = join(folder, "features.yaml");
      await writeFile(features, JSON.stringify(FEATURES));
      const run = async (...only: string[]): Promise<Outcome> => {
        const args = ["--mode", "server", "--conf", features, ...only, "--", process.execPath, SERVER, descriptors];
        const { all } = await execa(program, args, { all: true, reject: false, timeout: RUN_LIMIT_MS });
        return { version, ...outcomeOf(all) };
      };
      const first = await run();
      if (first.failures.length === 0) return first;
      // Deadlines of 200 ms, and delays of 50, assume an idle machine: failed cases are repeated alone.
      const again = await run(...first.failures.flatMap(({ name }) => ["--run", name]), "--parallel", "1");
      return { ...first, failures: again.failures };
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
};

/** Reads `FAILED: NAME:` with what is wrong in indented lines, and the counts at the end. */
function outcomeOf(printed: string): { cases: number; failures: Failure[] } {
  const [, passed, failed] = /^(\d+) passed, (\d+) failed$/m.exec(printed) ?? [];
  if (passed === undefined) throw new Error(`it printed no counts: ${printed.slice(-2_000)}`);
  const failures = Array.from(printed.matchAll(/^FAILED: (.*?):\n((?:\t.*\n?)*)/gm), ([, name = "", problem = ""]) => ({
    name,
    problem: problem.trim(),
  }));
  if (failures.length !== Number(failed))
    throw new Error(`${failed} cases failed, but it named ${failures.length}: ${printed}`);
  return { cases: Number(passed) + failures.length, failures };
}
