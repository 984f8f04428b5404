import { existsSync, readFileSync } from "node:fs";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoSuite, type GoSuite } from "../go.ts";
import { foreignSuite, type Outcome } from "../suite.ts";

const MODULE = "connectrpc.com/conformance";
/** An emergency brake: it takes seconds. */
const RUN_LIMIT_MS = 300_000;
const REPETITIONS = 2;

/** What both sides speak: gRPC with uncompressed protobuf over HTTP/2. */
const FEATURES = {
  versions: ["HTTP_VERSION_2"],
  protocols: ["PROTOCOL_GRPC"],
  codecs: ["CODEC_PROTO"],
  compressions: ["COMPRESSION_IDENTITY"],
  supportsTls: true,
  supportsTlsClientCerts: true,
};

/** In server mode. */
foreignSuite("connectconformance, of the agent's gRPC, HTTP/2 and TLS", 199, async () => {
  const suite = await buildGoSuite(MODULE, `${MODULE}/cmd/connectconformance`);
  if (typeof suite === "string") return suite;
  await generate(suite);
  await using directory = await mkdtempDisposable(join(tmpdir(), "conformance-"));
  // JSON is YAML. The agent takes nobody without a certificate.
  const features = join(directory.path, "features.yaml");
  const excludeCases = [{ useTls: true, useTlsClientCerts: false }];
  await writeFile(features, JSON.stringify({ features: FEATURES, excludeCases }));
  const program = join(import.meta.dirname, "under-test/server.ts");
  const run = async (only: readonly string[]): Promise<Named> => {
    const chosen = only.length > 0 ? ["--parallel", "1", ...only.flatMap((name) => ["--run", name])] : [];
    const words = ["--mode", "server", "--conf", features, ...chosen, "--", process.execPath, program];
    const { all } = await execa(suite.program, words, { all: true, reject: false, timeout: RUN_LIMIT_MS });
    return runOf(all);
  };
  const { cases, failures } = await repeated(run);
  return { cases, failures: failures.map(({ name, problem }) => `${name}: ${problem}`) };
});

/** Where our program expects the generated code of the suite's schema. Git ignores it: it is not our schema. */
const GENERATED = join(import.meta.dirname, "under-test/gen");
const TYPES = ["ConformanceService", "ServerCompatRequest", "ServerCompatResponse"] as const;

/** Generates that code, once for each version of the suite, and checks our program's types with it. */
async function generate({ version, sources }: GoSuite): Promise<void> {
  const stamp = join(GENERATED, "version");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === version) return;
  const options = { cwd: import.meta.dirname, preferLocal: true, localDir: import.meta.dirname };
  await using directory = await mkdtempDisposable(join(tmpdir(), "conformance-schema-"));
  const image = join(directory.path, "suite.binpb");
  await execa("buf", ["build", "--exclude-source-info", "-o", image, join(await sources(), "proto")], options);
  const types = TYPES.map((name) => `connectrpc.conformance.v1.${name}`);
  const out = {
    local: "protoc-gen-es",
    out: GENERATED,
    opt: ["target=ts", "import_extension=ts", "erasable_syntax=true"],
  };
  const template = { version: "v2", clean: true, plugins: [out], inputs: [{ binary_image: image, types }] };
  await execa("buf", ["generate", "--template", JSON.stringify(template)], options);
  await execa("tsc", ["-p", "under-test"], options);
  await writeFile(stamp, version);
}

/** What one run has printed. */
interface Named extends Pick<Outcome, "cases"> {
  readonly failures: readonly { readonly name: string; readonly problem: string }[];
}

/** Deadlines of 200 ms and delays of 50 ms need an idle machine. So failed cases run once more alone. */
async function repeated(run: (only: readonly string[]) => Promise<Named>): Promise<Named> {
  const all = await run([]);
  let { failures } = all;
  for (let repetition = 1; repetition <= REPETITIONS && failures.length > 0; repetition++)
    failures = (await run(failures.map(({ name }) => name))).failures;
  return { ...all, failures };
}

/** Reads `FAILED: NAME:` with the problem in indented lines, and the counts at the end. */
function runOf(printed: string): Named {
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
