import { after, describe } from "node:test";
import { CLONE_HOOKS } from "../clones/source.ts";
import { cloneCases } from "./clone-cases.ts";
import { sandboxCases } from "./sandbox-cases.ts";
import { Stage } from "./stage.ts";
import { standbyCases } from "./standby-cases.ts";

/** The life of a sandbox on one kernel: booted, put on standby, cloned. One boot for all of it. */
export function kernelSuite(series: string): void {
  describe(`Linux ${series}`, () => {
    const stage = new Stage({ kernel: series, hooks: CLONE_HOOKS });
    after(() => stage.end());
    sandboxCases(stage, series);
    standbyCases(stage);
    cloneCases(stage, { hasVdso: series !== "6.1" });
  });
}
