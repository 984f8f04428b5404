import { describe } from "node:test";
import { fullMemoryCases } from "./cases/memory-cases.ts";

const UNKILLABLE = "memory of one that the kernel never kills";

describe("a guest of 256 MB", () => fullMemoryCases(256, ["memory of its own", "a file in memory", UNKILLABLE]));
describe("a guest of 128 MB in a container exempt from OOM kills", () =>
  fullMemoryCases(128, ["memory of its own", "a file in memory", UNKILLABLE], -1000));
