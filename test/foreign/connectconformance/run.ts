import { existsSync, readFileSync } from "node:fs";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoSuite, type GoSuite } from "../go.ts";
import type { Failure, Outcome } from "../suite.ts";

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

/** How the suite is run. */
export interface ConformanceRun {
  /** Which side is ours. */
  readonly mode: "server" | "client";
  /** The program under test. */
  readonly program: string;
  /** As in the suite's configuration. */
  readonly excludeCases?: readonly object[];
  /** Patterns of names. */
  readonly skip?: readonly string[];
  /** Names of cases that are known to differ. */
  readonly known?: ReadonlySet<string>;
}

/** Runs the suite. @throws Unavailable */
export async function runConformance(given: ConformanceRun): Promise<Outcome> {
  const { mode, program, excludeCases = [], skip = [], known = new Set() } = given;
  const suite = await buildGoSuite(import.meta.dirname, MODULE, `${MODULE}/cmd/connectconformance`);
  await generate(suite);
  await using folder = await mkdtempDisposable(join(tmpdir(), "conformance-"));
  // JSON is YAML.
  const features = join(folder.path, "features.yaml");
  await writeFile(features, JSON.stringify({ features: FEATURES, excludeCases }));
  const run = async (only: readonly string[]): Promise<Run> => {
    const chosen = [...skip.flatMap((pattern) => ["--skip", pattern]), ...only.flatMap((name) => ["--run", name])];
    // Our client makes one call after another.
    const alone = only.length > 0 && mode === "server" ? ["--parallel", "1"] : [];
    const words = ["--mode", mode, "--conf", features, ...chosen, ...alone, "--", process.execPath, program];
    const { all } = await execa(suite.program, words, { all: true, reject: false, timeout: RUN_LIMIT_MS });
    return runOf(all);
  };
  return { version: suite.version, ...(await repeated(run, known)) };
}

/** Where our programs expect the generated code of the suite's schema. Git ignores it: it is not our schema. */
const GENERATED = join(import.meta.dirname, "under-test/gen");
const TYPES = [
  "ConformanceService",
  "ClientCompatRequest",
  "ClientCompatResponse",
  "ServerCompatRequest",
  "ServerCompatResponse",
] as const;

/** Generates that code, once for each version of the suite, and checks our programs' types with it. */
async function generate({ version, sources }: GoSuite): Promise<void> {
  const stamp = join(GENERATED, "version");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === version) return;
  const options = { cwd: import.meta.dirname, preferLocal: true, localDir: import.meta.dirname };
  await using folder = await mkdtempDisposable(join(tmpdir(), "conformance-schema-"));
  const image = join(folder.path, "suite.binpb");
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
interface Run {
  readonly cases: number;
  readonly failures: readonly Failure[];
  /** Our client said nothing for 20 s, and the suite has ended it. */
  readonly isCutShort: boolean;
}

/**
 * Deadlines of 200 ms, delays of 50 ms and a client that starts in 20 s need an idle machine. So failed cases run once
 * more alone, and a run that was cut short runs again as a whole.
 */
async function repeated(
  run: (only: readonly string[]) => Promise<Run>,
  known: ReadonlySet<string>,
): Promise<Omit<Outcome, "version">> {
  let outcome = await run([]);
  for (let repetition = 1; repetition <= REPETITIONS; repetition++) {
    const suspect = outcome.failures.filter(({ name }) => !known.has(name));
    if (outcome.isCutShort) {
      outcome = await run([]);
    } else if (suspect.length > 0) {
      const again = await run(suspect.map(({ name }) => name));
      const sure = outcome.failures.filter((failure) => !suspect.includes(failure));
      if (!again.isCutShort) outcome = { ...outcome, failures: [...sure, ...again.failures] };
    }
  }
  return outcome;
}

/** Reads `FAILED: NAME:` with the problem in indented lines, and the counts at the end. */
function runOf(printed: string): Run {
  const [, passed, failed] = /^(\d+) passed, (\d+) failed$/m.exec(printed) ?? [];
  if (passed === undefined) throw new Error(`it printed no counts: ${printed.slice(-2_000)}`);
  const failures = Array.from(printed.matchAll(/^FAILED: (.*?):\n((?:\t.*\n?)*)/gm), ([, name = "", problem = ""]) => ({
    name,
    problem: problem.trim(),
  }));
  if (failures.length !== Number(failed))
    throw new Error(`${failed} cases failed, but it named ${failures.length}: ${printed}`);
  const isCutShort = /timed out waiting for result|^Another \d+ could not be run/m.test(printed);
  return { cases: Number(passed) + failures.length, failures, isCutShort };
}
