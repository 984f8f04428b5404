import type { TestEvent } from "node:test/reporters";
import type { TestRecord } from "./summary.ts";

type Ended = TestEvent & { type: "test:pass" | "test:fail" };

/** Why a test is skipped; undefined if it is not. A "todo" test proves nothing, so it counts as skipped. */
function skipReason({ data }: Ended): string | undefined {
  const mark = [data.skip, data.todo].find((value) => value !== undefined && value !== false);
  if (mark === undefined) return undefined;
  return typeof mark === "string" && mark !== "" ? mark : "no reason given";
}

/**
 * Whether the event is for a suite whose result only follows from its tests: it passed, or failed only because a test
 * did.
 */
function isMereSuite(event: Ended): boolean {
  if (event.data.details.type !== "suite") return false;
  if (event.type === "test:pass") return skipReason(event) === undefined;
  const { error } = event.data.details;
  return "failureType" in error && error.failureType === "subtestsFailed";
}

function recordOf(event: Ended, title: string): TestRecord {
  const reason = skipReason(event);
  if (reason !== undefined) return { title, verdict: "skipped", reason };
  return { title, verdict: event.type === "test:pass" ? "passed" : "failed" };
}

/**
 * A reporter of node:test. Writes a JSON line when a test begins and when it ends, and the line `"end"` after the last
 * test of the file. For any other event it writes an empty line, which shows that the file makes progress.
 */
async function* reportEvents(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const titles: string[] = [];
  for await (const event of source) {
    if (event.type === "test:start") {
      titles.splice(event.data.nesting, Infinity, event.data.name);
    } else if (event.type === "test:dequeue") {
      yield `${JSON.stringify({ begun: event.data.name })}\n`;
    } else if (event.type === "test:summary") {
      yield '"end"\n';
    } else if ((event.type === "test:pass" || event.type === "test:fail") && !isMereSuite(event)) {
      const title = [...titles.slice(0, event.data.nesting), event.data.name].join(" > ");
      yield `${JSON.stringify(recordOf(event, title))}\n`;
    } else {
      yield "\n";
    }
  }
}

// node:test expects the reporter as the default export of its module.
export { reportEvents as default };
