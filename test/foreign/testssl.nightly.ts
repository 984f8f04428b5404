import { readFile } from "node:fs/promises";
import { execa } from "execa";
import { testDirectory } from "../fixtures/files.ts";
import { startAgent } from "../fixtures/agent.ts";
import { lackOf } from "./programs.ts";
import { foreignSuite } from "./suite.ts";

const PROGRAMS = [
  { name: "testssl", package: "testssl.sh" },
  // testssl.sh converts hexadecimal with these.
  { name: "hexdump", package: "bsdextrautils" },
  { name: "ps", package: "procps" },
];
/** An emergency brake: it takes half a minute. */
const RUN_LIMIT_MS = 400_000;
/** Entries about the scan itself. */
const NO_CASES = new Set(["engine_problem", "service", "pre_128cipher", "scanTime"]);
/** WARN: it could not find out. */
const FAULTS = new Set(["LOW", "MEDIUM", "HIGH", "CRITICAL", "FATAL", "WARN"]);

interface Finding {
  readonly id: string;
  readonly severity: string;
  readonly finding: string;
}

/**
 * The scan gave up before its first case. It closes right after the handshake. If the agent's refusal of a client
 * without a certificate comes first, it believes that it cannot connect to the port.
 */
const NOT_BEGUN = "optimal_proto";
const TRIES = 3;

/** One scan's findings. */
async function scan(target: string, report: string): Promise<readonly Finding[]> {
  const sections = ["--protocols", "--std", "--vulnerable"];
  const quiet = ["--quiet", "--color", "0", "--warnings", "batch", "--nodns", "none"];
  // Its status says no more than the report does.
  await execa("testssl", [...quiet, ...sections, "--jsonfile", report, target], {
    reject: false,
    timeout: RUN_LIMIT_MS,
    stdin: "ignore",
  });
  const all = JSON.parse(await readFile(report, "utf8")) as readonly Finding[];
  return all.filter(({ id }) => !NO_CASES.has(id));
}

foreignSuite("testssl.sh, of the protocols, ciphers and vulnerabilities of the agent's port", 32, async () => {
  const lack = lackOf(PROGRAMS);
  if (lack !== undefined) return lack;
  await using agent = await startAgent();
  await using directory = await testDirectory();
  let findings: readonly Finding[] = [];
  for (let tries = 1; tries <= TRIES; tries++) {
    findings = await scan(`127.0.0.1:${agent.port}`, directory.at(`report-${tries}.json`));
    if (!findings.some(({ id }) => id === NOT_BEGUN)) break;
  }
  const faults = findings.filter(({ severity }) => FAULTS.has(severity));
  return {
    cases: findings.length,
    failures: faults.map(({ id, severity, finding }) => `${id}: ${severity}: ${finding}`),
  };
});
