import { readFile } from "node:fs/promises";
import { execa } from "execa";
import { testDirectory } from "../../fixtures/files.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { buildGoSuite } from "../go.ts";
import { foreignSuite, type Outcome } from "../suite.ts";

/*
 * h2spec's whole list, its strict cases too, against the agent's unix socket: it cannot show a client certificate. What
 * runs above TLS is the same. It asks for `GET /`, which the agent answers without gRPC.
 */

const MODULE = "github.com/summerwind/h2spec";
/** Cases of each list: fewer mean that the list did not run completely. */
const LISTS = { generic: 44, http2: 95, hpack: 7 } as const;
/**
 * How long h2spec waits for an expected frame, which ends a case at once. Less than the 5 s after which the agent
 * closes a connection without a request. h2spec would take that end for the right answer to many mistakes.
 */
const CASE_LIMIT_S = 4;
const RUN_LIMIT_MS = 500_000;

for (const [list, cases] of Object.entries(LISTS))
  foreignSuite(`h2spec's list ${list}, of the agent's HTTP/2`, cases, async () => {
    const suite = await buildGoSuite(MODULE, `${MODULE}/cmd/h2spec`);
    if (typeof suite === "string") return suite;
    await using agent = await startSocketAgent();
    return await run(suite.program, agent.socketPath, list);
  });

/**
 * Runs a list of h2spec through a relay of bytes, because it dials TCP only. Each list alone: it keeps its connections
 * to its end, and those of all lists are more than the agent takes.
 */
async function run(program: string, socketPath: string, list: string): Promise<Outcome> {
  await using relay = await relayTo({ path: socketPath });
  await using directory = await testDirectory();
  const report = directory.at("report.xml");
  const args = ["--strict", "--port", String(relay.port), "--timeout", String(CASE_LIMIT_S), "-j", report, list];
  // Its status says no more than the report does.
  await execa(program, args, { reject: false, timeout: RUN_LIMIT_MS });
  return outcomeOf(await readFile(report, "utf8"));
}

/** The cases of a JUnit report: h2spec writes each as `<testcase package classname>`, with an element for a fault. */
function outcomeOf(report: string): Outcome {
  const cases = [...report.matchAll(/<testcase package="([^"]*)" classname="([^"]*)"[^>]*>(.*?)<\/testcase>/gs)];
  const failures = cases.flatMap(([, section = "", title = "", body = ""]) =>
    /<(?:error|failure|skipped)\b/.test(body) ? [`${section}: ${title}: ${body.trim()}`] : [],
  );
  return { cases: cases.length, failures };
}
