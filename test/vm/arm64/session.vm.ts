import { after, describe } from "node:test";
import { CLONE_HOOKS } from "../clones/source.ts";
import { endCase, SANDBOX_PROCESS, sandboxCases } from "../cases/sandbox-cases.ts";
import { Stage } from "../cases/stage.ts";

describe("Linux 6.12", () => {
  const stage = new Stage({ kernel: "6.12", process: SANDBOX_PROCESS, hooks: CLONE_HOOKS });
  after(() => stage.end());
  sandboxCases(stage, "6.12");
  endCase(stage);
});
