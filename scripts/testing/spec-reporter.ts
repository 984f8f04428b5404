import { Readable } from "node:stream";
import { spec, type TestEvent } from "node:test/reporters";

/** The event with another name of its test. */
function renamed<Event extends TestEvent & { type: "test:start" | "test:fail" }>(event: Event, name: string): Event {
  return { ...event, data: { ...event.data, name } };
}

/**
 * Names each failed test by its whole path, since half of its sentence stands in describe. The spec reporter insists
 * that a test ends under the name of its beginning, so a beginning waits for what comes next.
 */
async function* byWholePath(source: AsyncIterable<TestEvent>): AsyncGenerator<TestEvent> {
  const titles: string[] = [];
  let begun: (TestEvent & { type: "test:start" }) | undefined;
  for await (const event of source) {
    if (event.type === "test:start") {
      if (begun !== undefined) yield begun;
      begun = event;
      titles.splice(event.data.nesting, Infinity, event.data.name);
    } else if (event.type === "test:fail" && begun !== undefined && begun.data.nesting === event.data.nesting) {
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

/** Reporter of node:test: the spec reporter, whose failing lines alone say what failed. */
async function* reportSpec(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  yield* Readable.from(byWholePath(source)).compose(new spec()) as AsyncIterable<string>;
}

// node:test takes a reporter as the default export of its module.
export { reportSpec as default };
