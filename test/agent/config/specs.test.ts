import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, fromJson, toBinary } from "@bufbuild/protobuf";
import { readHooksSpec, readProcessSpec } from "../../../src/agent/config/specs.ts";
import { HooksSchema, ProcessSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/process_pb.ts";
import { MARKER } from "./sandbox.ts";

const process = {
  args: ["sh", "-c", "exec sleep 1", ""],
  env: { GREETING: "hällo", EMPTY: "" },
  cwd: "/srv",
  user: "app:wheel",
  readyCmd: { args: ["true"], intervalMs: 20, timeoutMs: 30 },
  stopGraceMs: 40,
  output: { keep: { bufferBytes: 4096 } },
};
const processSpec = {
  args: process.args,
  env: new Map(Object.entries(process.env)),
  cwd: "/srv",
  user: "app:wheel",
  readyCommand: process.readyCmd,
  stopGraceMs: 40,
  output: { bufferBytes: 4096 },
};
const hooks = { preSnapshot: { args: ["sync"], env: { A: "1" }, cwd: "/", user: "0" } };
const hooksSpec = {
  preSnapshot: { args: ["sync"], env: new Map([["A", "1"]]), cwd: "/", user: "0" },
  postRestore: undefined,
};

function binary(value: typeof process): Buffer {
  return Buffer.from(toBinary(ProcessSchema, fromJson(ProcessSchema, value)));
}

describe("SVC_PROCESS_SPEC", () => {
  test("SVC_PROCESS_SPEC accepts proto3 JSON with camel-case or snake-case field names", () => {
    assert.deepEqual(readProcessSpec(JSON.stringify(process)), { value: processSpec, problems: [] });
    const { readyCmd, stopGraceMs, ...rest } = process;
    const snake = {
      ...rest,
      ready_cmd: { args: readyCmd.args, interval_ms: readyCmd.intervalMs, timeout_ms: "30" },
      stop_grace_ms: stopGraceMs,
    };
    assert.deepEqual(readProcessSpec(` \n${JSON.stringify(snake, undefined, 2)}\n`), {
      value: processSpec,
      problems: [],
    });
  });

  test("SVC_PROCESS_SPEC accepts base64 or base64url, with line breaks or without padding", () => {
    const bytes = binary(process);
    const lines = bytes.toString("base64").replace(/.{20}/g, "$&\n");
    for (const text of [bytes.toString("base64"), bytes.toString("base64url"), `${lines}\n`]) {
      assert.deepEqual(readProcessSpec(text), { value: processSpec, problems: [] });
    }
  });

  test("SVC_PROCESS_SPEC uses defaults for fields that are absent or 0", () => {
    const { value } = readProcessSpec('{"args": ["x"], "ready_cmd": {"args": ["y"], "interval_ms": 0}, "cwd": null}');
    assert.deepEqual(value.readyCommand, { args: ["y"], intervalMs: 1000, timeoutMs: 5000 });
    assert.deepEqual([value.stopGraceMs, value.cwd], [10_000, ""]);
    for (const [output, read] of [
      ["null", undefined],
      ['{"inherit": {}}', undefined],
      ['{"keep": {}}', { bufferBytes: 1_048_576 }],
    ] as const)
      assert.deepEqual(readProcessSpec(`{"output": ${output}}`).value.output, read);
  });

  test("SVC_PROCESS_SPEC reports all JSON faults at once with their fields", () => {
    const json = {
      args: ["ok", 5],
      arg: MARKER,
      env: { GOOD: "x", BAD: { [MARKER]: MARKER } },
      cwd: [MARKER],
      ready_cmd: { args: MARKER, interval_ms: -1, timeoutMs: MARKER, retries: 3, "odd\nname": 1 },
      stop_grace_ms: 1.5,
      user: 1000,
      output: { inherit: {}, keep: { buffer_bytes: "x" } },
    };
    assert.deepEqual(readProcessSpec(JSON.stringify(json)).problems, [
      "args[1]: must be a string",
      "arg: unknown field of Process",
      "env.BAD: must be a string",
      "cwd: must be a string",
      "ready_cmd.args: must be an array",
      "ready_cmd.interval_ms: must be a whole number from 0 to 4294967295",
      "ready_cmd.timeout_ms: must be a whole number from 0 to 4294967295",
      "ready_cmd.retries: unknown field of ReadyCommand",
      'ready_cmd."odd\\nname": unknown field of ReadyCommand',
      "stop_grace_ms: must be a whole number from 0 to 4294967295",
      "user: must be a string",
      "output.keep.buffer_bytes: must be a whole number from 0 to 4294967295",
      "output: has inherit and keep; set only one of them",
    ]);
  });

  test("SVC_PROCESS_SPEC reports an undecodable value without quoting it", () => {
    assert.match(
      readProcessSpec(`{"args": ["${MARKER}" ${MARKER}]}`).problems.join(),
      /^is not valid JSON \(at character \d+\)$/,
    );
    assert.deepEqual(readProcessSpec(`{"cwd": "/a", "cwd": "/b"}`).problems, [
      "is not the JSON form of svc.guest.v1alpha1.Process; it may contain a duplicate key",
    ]);
    for (const text of [
      "no base64!",
      Buffer.from(MARKER).toString("base64"),
      binary(process).subarray(0, -3).toString("base64"),
    ]) {
      assert.deepEqual(readProcessSpec(text).problems, [
        `is neither JSON nor a binary svc.guest.v1alpha1.Process in base64; expected, for example, {"args": ["sleep", "10"]}`,
      ]);
    }
  });

  test("SVC_PROCESS_SPEC rejects half a surrogate pair and names the field", () => {
    const spec = { args: ["a", "b\ud83d"], env: { "A\udc00": "x", B: "\u{1f600}\ud800" }, cwd: "/\ud800" };
    const half = "must be valid Unicode text, but contains half of a surrogate pair";
    assert.deepEqual(readProcessSpec(JSON.stringify(spec)).problems, [
      `args[1]: ${half}`,
      `env."A\\udc00": ${half}`,
      `env.B: ${half}`,
      `cwd: ${half}`,
    ]);
    assert.deepEqual(readProcessSpec(JSON.stringify({ args: ["\u{1f600}"] })).problems, []);
  });

  test("SVC_PROCESS_SPEC reports every invalid field with a reason", () => {
    const spec = {
      args: ["", "a\0b"],
      env: { "": "x", [`A=${MARKER}`]: "x", C: `${MARKER}\0` },
      cwd: "relative\0",
      user: "a:b:c",
      ready_cmd: {},
      output: { keep: { buffer_bytes: 16_777_217 } },
    };
    assert.deepEqual(readProcessSpec(JSON.stringify(spec)).problems, [
      "args[0]: must not be empty: it names the command to run",
      "args[1]: contains a NUL byte",
      'env[""]: has an empty name',
      "env[\"A\"]: has a name that contains '='",
      'env["C"]: contains a NUL byte',
      "cwd: must be an absolute path",
      "cwd: contains a NUL byte",
      "user: has more than one colon; use user, uid, user:group or uid:gid",
      "ready_cmd.args: is empty; name a command or leave ready_cmd out",
      "output.keep.buffer_bytes: is 16777217, but the maximum is 16777216",
    ]);
  });
});

describe("SVC_HOOKS_SPEC", () => {
  test("SVC_HOOKS_SPEC accepts JSON and base64", () => {
    assert.deepEqual(readHooksSpec(JSON.stringify(hooks)), { value: hooksSpec, problems: [] });
    const bytes = Buffer.from(toBinary(HooksSchema, create(HooksSchema, hooks)));
    assert.deepEqual(readHooksSpec(bytes.toString("base64")), { value: hooksSpec, problems: [] });
  });

  test("SVC_HOOKS_SPEC reports the invalid fields of both hooks at once", () => {
    const spec = {
      pre_snapshot: { args: [], cwd: "x", user: ":" },
      post_restore: { args: ["x"], env: { A: "\0" }, user: "-1" },
    };
    assert.deepEqual(readHooksSpec(JSON.stringify(spec)).problems, [
      "pre_snapshot.args: is empty; name a command or leave pre_snapshot out",
      "pre_snapshot.cwd: must be an absolute path",
      "pre_snapshot.user: has no name before the colon; use user, uid, user:group or uid:gid",
      'post_restore.env["A"]: contains a NUL byte',
      "post_restore.user: has an id that is not from 0 to 2147483647",
    ]);
  });
});
