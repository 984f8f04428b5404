import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { checkExecRequest, ExecInputOrder, type ExecRequest } from "../../../src/agent/exec/index.ts";

function request(changes: Partial<ExecRequest> = {}): ExecRequest {
  return {
    args: ["true"],
    env: new Map(),
    cwd: "",
    user: "",
    stdio: { kind: "pipes", stdin: true },
    timeoutMs: 0,
    keep: undefined,
    ...changes,
  };
}

const TERMINAL = { kind: "terminal", cols: 80, rows: 24, term: "xterm" } as const;
const STDIN = { kind: "stdin", bytes: Buffer.from("x") } as const;

function refused(reason: string): (error: unknown) => boolean {
  return (error) => error instanceof AgentError && error.status === "INVALID_ARGUMENT" && error.reason === reason;
}

describe("a start frame", () => {
  const cases: readonly [string, Partial<ExecRequest>][] = [
    ["no arguments", { args: [] }],
    ["an empty command", { args: [""] }],
    ["a NUL byte in an argument", { args: ["echo", "a\0b"] }],
    ["an empty variable name", { env: new Map([["", "x"]]) }],
    ["'=' in a variable name", { env: new Map([["A=B", "x"]]) }],
    ["a NUL byte in a variable name", { env: new Map([["A\0", "x"]]) }],
    ["a NUL byte in a value", { env: new Map([["A", "x\0"]]) }],
    ["a relative working directory", { cwd: "tmp" }],
    ["a NUL byte in the working directory", { cwd: "/tmp\0" }],
    ["a terminal that is too wide", { stdio: { ...TERMINAL, cols: 65_536 } }],
    ["a NUL byte in TERM", { stdio: { ...TERMINAL, term: "x\0" } }],
  ];
  for (const [title, changes] of cases) {
    it(`is refused with ${title}`, () => {
      assert.throws(() => checkExecRequest(request(changes)), refused("INVALID_FIELD"));
    });
  }

  it("may hold any other bytes in arguments and values", () => {
    checkExecRequest(request({ args: ["x", "", "\n", "-"], env: new Map([["a b", "=\n"]]) }));
  });

  it("may ask for a terminal of no particular size", () => {
    checkExecRequest(request({ stdio: { ...TERMINAL, cols: 0, rows: 0 } }));
  });

  it("is refused by the name of the entry, without what slipped into it from a value", () => {
    const faults: readonly [string, Partial<ExecRequest>][] = [
      ["start.args[1] holds a NUL byte", { args: ["echo", "a\0b"] }],
      ["start.env[\"TOKEN\"] has a name that holds '='", { env: new Map([["TOKEN=secret", "x"]]) }],
      ['start.env[""] has an empty name', { env: new Map([["", "x"]]) }],
      ['start.env["A\\u0000"] has a name that holds a NUL byte', { env: new Map([["A\0", "x"]]) }],
      ['start.env["A"] holds a NUL byte', { env: new Map([["A", "x\0"]]) }],
    ];
    for (const [message, changes] of faults) assert.throws(() => checkExecRequest(request(changes)), { message });
  });

  it("names an entry of any length in a short line", () => {
    assert.throws(
      () => checkExecRequest(request({ env: new Map([[`${"A".repeat(1_000_000)}=`, "x"]]) })),
      (error) => error instanceof Error && error.message.length < 200,
    );
  });

  it("does not repeat a value when it refuses it", () => {
    assert.throws(
      () => checkExecRequest(request({ env: new Map([["A", "secret\0"]]) })),
      (error) => error instanceof Error && !error.message.includes("secret"),
    );
  });
});

describe("the order of frames", () => {
  it("refuses stdin after stdin_close", () => {
    const order = new ExecInputOrder(request());
    order.check(STDIN);
    order.check({ kind: "stdin_close" });
    assert.throws(() => order.check(STDIN), refused("FRAME_ORDER"));
  });

  it("refuses a second stdin_close", () => {
    const order = new ExecInputOrder(request());
    order.check({ kind: "stdin_close" });
    assert.throws(() => order.check({ kind: "stdin_close" }), refused("FRAME_ORDER"));
  });

  it("refuses stdin that was not asked for", () => {
    assert.throws(
      () => new ExecInputOrder(request({ stdio: { kind: "pipes", stdin: false } })).check(STDIN),
      refused("FRAME_ORDER"),
    );
  });

  it("takes stdin for a terminal even where it was not asked for", () => {
    new ExecInputOrder(request({ stdio: TERMINAL })).check(STDIN);
  });

  it("refuses a resize without a terminal", () => {
    const order = new ExecInputOrder(request());
    assert.throws(() => order.check({ kind: "resize", cols: 80, rows: 24 }), refused("FRAME_ORDER"));
  });

  it("refuses a size beyond what a terminal can have, and lets one of nothing pass", () => {
    const order = new ExecInputOrder(request({ stdio: TERMINAL }));
    assert.throws(() => order.check({ kind: "resize", cols: 65_536, rows: 24 }), refused("INVALID_FIELD"));
    order.check({ kind: "resize", cols: 1, rows: 65_535 });
    order.check({ kind: "resize", cols: 0, rows: 0 });
  });

  it("takes signals 1 to 64, also after stdin_close, and refuses 0 and 65", () => {
    const order = new ExecInputOrder(request());
    order.check({ kind: "stdin_close" });
    order.check({ kind: "signal", number: 1 });
    order.check({ kind: "signal", number: 64 });
    for (const number of [0, 65]) {
      assert.throws(() => order.check({ kind: "signal", number }), refused("INVALID_FIELD"));
    }
  });
});
