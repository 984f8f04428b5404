import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { ENDS, MOMENTS, OPERATIONS, outlives } from "./departures.ts";

describe("a sandbox outlives the end of what suspends it, at 20 moments:", NEEDS_NAMESPACES, () => {
  for (const operation of OPERATIONS)
    for (const end of ENDS) test(`${operation}, ${end}`, () => outlives(operation, end, MOMENTS));
});
