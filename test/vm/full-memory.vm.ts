import { describe } from "node:test";
import { fullMemoryCases } from "./cases/memory-cases.ts";

// The smallest guest (docs/agent/reliability.md).
describe("a guest of 128 MB", () => fullMemoryCases(128, ["memory of its own", "a file in memory"]));
