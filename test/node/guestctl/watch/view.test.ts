import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Sample } from "../../../../src/node/guestctl/watch/watch.ts";
import {
  type History,
  NO_HISTORY,
  type ViewFrame,
  viewLines,
  withSample,
} from "../../../../src/node/guestctl/watch/view.ts";
import { healthOf } from "../../../../src/node/client/health.ts";
import { GuestError } from "../../../../src/node/client/index.ts";
import { HealthResponseSchema } from "../../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";

const START_MS = Date.UTC(2026, 0, 1);
const FRAME: ViewFrame = { place: "box:7071", intervalMs: 1_000, now: new Date(START_MS), cols: 80, rows: 24 };

function up(atMs: number, health: MessageInitShape<typeof HealthResponseSchema> = {}, clockErrorMs = 0): Sample {
  const guestTime = timestampFromMs(START_MS + atMs + clockErrorMs);
  return {
    time: new Date(START_MS + atMs),
    health: healthOf(create(HealthResponseSchema, { alive: true, ready: true, guestTime, ...health })),
    roundTripMs: 1.25,
    clockErrorMs,
    agentVersion: "1.2.3",
  };
}

function lost(atMs: number, message = "connect ECONNREFUSED"): Sample {
  return { time: new Date(START_MS + atMs), error: new GuestError({ status: "UNAVAILABLE", message }) };
}

const historyOf = (samples: readonly Sample[]): History => samples.reduce(withSample, NO_HISTORY);

const eventsOf = (samples: readonly Sample[]): string[] => historyOf(samples).events.map(({ text }) => text);

describe("what a watch notes", () => {
  test("is the first answer, and nothing while all stays as it is", () => {
    assert.deepEqual(eventsOf([up(0), up(1_000), up(2_000)]), ["up and ready"]);
    assert.deepEqual(eventsOf([up(0, { ready: false, readyCmdExit: -1 })]), [
      "up, not ready (ready_cmd: no verdict yet)",
    ]);
  });

  test("is a lost agent once, and when it is back", () => {
    const samples = [up(0), lost(1_000), lost(2_000), up(4_500)];
    assert.deepEqual(eventsOf(samples), ["back after 3.5 s", "lost: connect ECONNREFUSED", "up and ready"]);
  });

  test("is every change of readiness, of idleness, of the agent and of its clock", () => {
    const restored = { ...up(4_000, { idleDeclared: timestampFromMs(5) }, -3_600_000), agentVersion: "1.2.4" };
    assert.deepEqual(
      eventsOf([
        up(0),
        up(1_000, { ready: false, readyCmdExit: 9 }),
        up(2_000),
        up(3_000, { idleDeclared: timestampFromMs(5) }),
        restored,
      ]),
      [
        "guest clock moved by -3600.000 s",
        "agent version 1.2.4",
        "idle declared",
        "ready",
        "not ready (ready_cmd: exit 9)",
        "up and ready",
      ],
    );
  });
});

describe("the screen of a watch", () => {
  const textOf = (history: History, frame: Partial<ViewFrame> = {}): string =>
    viewLines(history, { ...FRAME, ...frame })
      .map(({ text }) => text)
      .join("\n");

  test("tells all that Health tells, in terms of the guest's own clock", () => {
    const health = {
      lastUserActivity: timestampFromMs(START_MS - 12_500),
      idleDeclared: timestampFromMs(START_MS - 1_000),
      guestTime: timestampFromMs(START_MS),
    };
    const text = textOf(historyOf([up(0, health)]));
    assert.match(text, /^guestctl watch {2}box:7071 +every 1 s {2}\d\d:\d\d:\d\d\nstate +up, ready\n/);
    assert.match(text, /^activity +13 s ago {2}2025-12-31T23:59:47\.500Z$/m);
    assert.match(text, /^idle +1\.0 s ago {2}2025-12-31T23:59:59\.000Z$/m);
    assert.match(text, /^guest time +2026-01-01T00:00:00\.000Z {2}\+0\.000 s to this host$/m);
    assert.match(text, /^answers +1 of 1, the last in 1\.3 ms\nagent +version 1\.2\.3$/m);
    assert.match(text, /\d\d:\d\d:\d\d {2}up and ready\n\nq leaves$/);
  });

  test("tells how long an agent has been lost and why, and keeps what it said last", () => {
    const history = historyOf([up(0), lost(1_000)]);
    const lines = viewLines(history, { ...FRAME, now: new Date(START_MS + 5_000) });
    assert.deepEqual(lines[1], { text: "state       lost for 4.0 s, trying again", style: "bad" });
    assert.deepEqual(lines[2], { text: "            connect ECONNREFUSED [UNAVAILABLE]", style: "bad" });
    assert.equal(lines.find(({ text }) => text.startsWith("agent"))?.style, "faint");
    assert.match(textOf(NO_HISTORY), /^state +connecting$/m);
    assert.match(textOf(historyOf([lost(0)])), /^state +no answer for 0\.0 s, trying again$/m);
  });

  test("knows no clock of an agent that does not tell it", () => {
    const answer = { ...up(0, { guestTime: undefined }), clockErrorMs: Number.NaN };
    assert.match(textOf(historyOf([answer, answer])), /^idle +never\nguest time +unknown$/m);
  });

  test("fits every size, and lets nothing act on the terminal", () => {
    const history = historyOf([up(0), lost(1_000, `\u001b]0;evil\u0007${"x".repeat(300)}\u009b31m`), up(2_000)]);
    for (const [cols, rows] of [
      [80, 24],
      [40, 9],
      [12, 4],
      [1, 1],
      [0, 0],
    ] as const) {
      const lines = viewLines(history, { ...FRAME, cols, rows });
      assert.ok(lines.length <= rows);
      for (const { text } of lines) {
        assert.ok(text.length <= cols, `${text.length} of ${cols}: ${text}`);
        assert.doesNotMatch(text, /\p{Cc}/u);
      }
    }
  });
});
