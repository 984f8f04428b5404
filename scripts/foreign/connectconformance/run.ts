import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoSuite } from "../go.ts";
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
  await using folder = await mkdtempDisposable(join(tmpdir(), "conformance-"));
  await checkGenerated(join(await suite.sources(), "proto"), folder.path);
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

/** Rejects with the differences where gen is not what buf.gen.yaml makes of the suite's schema. */
async function checkGenerated(schema: string, folder: string): Promise<void> {
  const { dirname } = import.meta;
  const options = { cwd: folder, preferLocal: true, localDir: dirname };
  await execa("buf", ["build", "--exclude-source-info", "-o", "suite.binpb", schema], options);
  await execa("buf", ["generate", "--template", join(dirname, "buf.gen.yaml")], options);
  await execa("diff", ["-r", join(dirname, "gen"), "gen"], options);
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
