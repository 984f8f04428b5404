import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { shippedAgent } from "./harness/agent-build.ts";
import { measureResumes, STEPS } from "./harness/resume.ts";

/** Measured: 7,500. */
const MOST_PAGES = 11_000;

describe("from a resume to the first answers", () => {
  test("duties, POST_RESTORE, Health and a first command touch few pages of a restored guest's memory", async (t) => {
    const { pages, warmMs, coldMs } = await measureResumes(shippedAgent());
    const line = (costs: typeof pages): string => STEPS.map((step) => `${step} ${costs[step].toFixed(0)}`).join(", ");
    t.diagnostic(`pages by the end of each step: ${line(pages)}`);
    t.diagnostic(`ms, page cache warm: ${line(warmMs)}; cold: ${line(coldMs)}`);
    assert.ok(pages.alone > 0 && pages.alone < pages.duties && pages.duties < pages.exec);
    assert.ok(pages.exec < MOST_PAGES);
  });
});
