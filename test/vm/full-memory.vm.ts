import { describe } from "node:test";
import { fullMemoryCases, smallStartCases } from "./cases/memory-cases.ts";

describe("a guest of 128 MB", () => fullMemoryCases(128, ["memory of its own", "a file in memory"]));

describe("a guest of 96 MB", () => smallStartCases(96));
