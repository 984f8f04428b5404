import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { shippedAgent } from "./harness/sandbox.ts";
import { measureResumes, STEPS } from "./harness/resume.ts";

/** Measured: 6,100. On a busy machine the guest's own timers add some. */
const MOST_PAGES = 11_000;

describe("from a resume to the first answers", () => {
  test("restore steps, a POST_RESTORE hook, Health and Exec touch few memory pages", async (t) => {
    const { pages, frames, warmMs, coldMs } = await measureResumes(shippedAgent());
    const line = (costs: typeof pages): string => STEPS.map((step) => `${step} ${costs[step].toFixed(0)}`).join(", ");
    t.diagnostic(`pages by the end of each step: ${line(pages)}`);
    t.diagnostic(`frames of 2 MiB: ${line(frames)}`);
    t.diagnostic(`ms, page cache warm: ${line(warmMs)}; cold: ${line(coldMs)}`);
    assert.ok(pages.alone > 0 && pages.alone < pages.duties && pages.duties < pages.exec);
    assert.ok(frames.alone > 0 && frames.alone <= frames.exec && frames.exec < pages.exec / 20);
    assert.ok(pages.exec < MOST_PAGES);
  });
});
