import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout } from "node:timers/promises";
import { startAgent } from "../../fixtures/agent.ts";
import { ExecStream } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { processById } from "../../fixtures/proc.ts";

const ENTROPY = new Uint8Array(64).fill(7);

function ms(time: Date | undefined): number {
  return time === undefined ? Number.NaN : time.getTime();
}

describe("commands that the duties end", () => {
  it("are no user activity, however long they take to die", async () => {
    await using agent = await startAgent();
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "trap '' HUP; echo $$; exec sleep 1000"] });
    const pid = Number(await stream.until("\n"));
    using terminal = new ExecStream(agent);
    terminal.start({ args: ["cat"], terminal: {} });
    await terminal.next();
    using caller = clientOf(agent);
    const asked = ms((await caller.health()).guestTime);
    await caller.runRestoreDuties({ entropy: ENTROPY });
    const answered = ms((await caller.health()).guestTime);
    await Promise.all([assert.rejects(stream.outcome()), assert.rejects(terminal.outcome())]);
    let looksAfterwards = 20;
    while (looksAfterwards > 0) {
      const { lastUserActivity } = await caller.health();
      assert.ok(ms(lastUserActivity) >= asked && ms(lastUserActivity) <= answered);
      if (processById(pid) === undefined) looksAfterwards--;
      else await setTimeout(50);
    }
  });
});
