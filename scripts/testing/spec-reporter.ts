import { Readable } from "node:stream";
import { spec, type TestEvent } from "node:test/reporters";

/** The event with another name for its test. */
function renamed<Event extends TestEvent & { type: "test:start" | "test:fail" }>(event: Event, name: string): Event {
  return { ...event, data: { ...event.data, name } };
}

/**
 * Returns the error of a failed test and the errors that its disposal suppressed. The first of them is the cause of the
 * others.
 */
function allErrors(error: unknown): unknown[] {
  return error instanceof SuppressedError ? [...allErrors(error.suppressed), ...allErrors(error.error)] : [error];
}

/** Makes the stack of a SuppressedError show all its errors, because the spec reporter shows only the outermost one. */
function showSuppressed({ error }: { readonly error: Error }): void {
  const { cause } = error;
  if (!(cause instanceof SuppressedError)) return;
  const stacks = allErrors(cause).map((each) => (each instanceof Error ? (each.stack ?? each.message) : String(each)));
  cause.stack = stacks.join("\nand then, during disposal: ");
}

/**
 * Reports each failed test with the titles of its suites, because a test's title continues theirs. The spec reporter
 * requires that a test has the same name at its beginning and its end, so the beginning is held back until the next
 * event.
 */
async function* byWholePath(source: AsyncIterable<TestEvent>): AsyncGenerator<TestEvent> {
  const titles: string[] = [];
  let begun: (TestEvent & { type: "test:start" }) | undefined;
  for await (const event of source) {
    if (event.type === "test:start") {
      if (begun !== undefined) yield begun;
      begun = event;
      titles.splice(event.data.nesting, Infinity, event.data.name);
      continue;
    }
    if (event.type === "test:fail") showSuppressed(event.data.details);
    if (event.type === "test:fail" && begun !== undefined && begun.data.nesting === event.data.nesting) {
      const path = titles.slice(0, event.data.nesting + 1).join(" > ");
      yield renamed(begun, path);
      begun = undefined;
      yield renamed(event, path);
    } else {
      if (begun !== undefined) yield begun;
      begun = undefined;
      yield event;
    }
  }
}

/** A reporter of node:test: the spec reporter, but with full names for failed tests. */
async function* reportSpec(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  yield* Readable.from(byWholePath(source)).compose(new spec()) as AsyncIterable<string>;
}

// node:test expects the reporter as the default export of its module.
export { reportSpec as default };
