import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { ENDS, MOMENTS, OPERATIONS, outlives } from "./departures.ts";

describe("a suspension whose process ends, at 20 moments", NEEDS_NAMESPACES, () => {
  for (const operation of OPERATIONS)
    for (const end of ENDS)
      test(`a sandbox survives a ${operation} ended by ${end}, at 20 moments`, () => outlives(operation, end, MOMENTS));
});
