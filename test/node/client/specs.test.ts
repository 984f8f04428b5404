import assert from "node:assert/strict";
import { test } from "node:test";
import type { DescMessage } from "@bufbuild/protobuf";
import type {
  HooksSpec,
  HookSpec,
  KeepOutputSpec,
  ProcessOutputSpec,
  ProcessSpec,
  ReadyCommandSpec,
} from "../../../src/node/client/index.ts";
import {
  HookSchema,
  HooksSchema,
  KeepOutputSchema,
  ProcessOutputSchema,
  ProcessSchema,
  ReadyCommandSchema,
} from "../../../src/shared/gen/svc/guest/v1alpha1/process_pb.ts";

/** The names of each type. The compiler rejects a name that the type does not have, and a missing name. */
const PROCESS: Record<keyof ProcessSpec, true> = {
  args: true,
  env: true,
  cwd: true,
  user: true,
  readyCmd: true,
  ready_cmd: true,
  stopGraceMs: true,
  stop_grace_ms: true,
  output: true,
};
const READY: Record<keyof ReadyCommandSpec, true> = {
  args: true,
  intervalMs: true,
  interval_ms: true,
  timeoutMs: true,
  timeout_ms: true,
};
const OUTPUT: Record<keyof ProcessOutputSpec, true> = { inherit: true, keep: true };
const KEEP: Record<keyof KeepOutputSpec, true> = { bufferBytes: true, buffer_bytes: true };
const HOOKS: Record<keyof HooksSpec, true> = {
  preSnapshot: true,
  pre_snapshot: true,
  postRestore: true,
  post_restore: true,
};
const HOOK: Record<keyof HookSpec, true> = { args: true, env: true, cwd: true, user: true };

function namesOf({ fields }: DescMessage): readonly string[] {
  return [...new Set(fields.flatMap(({ jsonName, name }) => [jsonName, name]))];
}

test("the spec types (ProcessSpec, HooksSpec) have exactly the schema's field names", () => {
  for (const [names, schema] of [
    [PROCESS, ProcessSchema],
    [READY, ReadyCommandSchema],
    [OUTPUT, ProcessOutputSchema],
    [KEEP, KeepOutputSchema],
    [HOOKS, HooksSchema],
    [HOOK, HookSchema],
  ] as const) {
    assert.deepEqual(Object.keys(names).toSorted(), [...namesOf(schema)].toSorted(), schema.typeName);
  }
});
