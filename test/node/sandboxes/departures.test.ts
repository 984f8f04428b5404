import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { outlives, WRITING } from "./departures.ts";

describe("a sandbox outlives the end of what suspends it, while its memory is written:", NEEDS_NAMESPACES, () => {
  for (const [operation, end] of [
    ["standby", "SIGKILL"],
    ["standby", "SIGINT"],
    ["standby", "closed terminal"],
    ["snapshot", "SIGTERM"],
    ["fork", "SIGKILL"],
    ["fork", "SIGHUP"],
  ] as const)
    test(`${operation}, ${end}`, () => outlives(operation, end, [WRITING]));
});
