import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { KeptEvent } from "../../src/node/client/index.ts";
import type { HookKind } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { type ExecFrame, ExecFrameSchema, type ExecWhenFull } from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { FileTree } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { ask, grpcJsClient } from "../fixtures/rpc-clients.ts";
import { startStandIn } from "../fixtures/stand-in-agent.ts";

/** A value that is in no enumeration. */
const UNKNOWN = 42;
/** Fields that no release has, of all types on the wire. */
const FUTURE_FIELDS = [
  { no: 900, wireType: WireType.Varint, data: new BinaryWriter().uint32(7).finish() },
  { no: 901, wireType: WireType.LengthDelimited, data: new BinaryWriter().string("of the future").finish() },
  { no: 902, wireType: WireType.Bit64, data: Buffer.alloc(8, 9) },
  { no: 903, wireType: WireType.Bit32, data: Buffer.alloc(4, 9) },
];

function ofTheFuture<Shape extends Message>(message: Shape): Shape {
  message.$unknown = FUTURE_FIELDS;
  return message;
}

/** A frame with such fields, in what it holds too. */
function futureFrame(frame: NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>): ExecFrame {
  const message = create(ExecFrameSchema, { frame });
  if (typeof message.frame.value === "object" && "$typeName" in message.frame.value) ofTheFuture(message.frame.value);
  return ofTheFuture(message);
}

describe("unknown fields from a newer peer", () => {
  test("the agent ignores unknown fields in an exec's frames", async () => {
    await using agent = await startAgent();
    const start = futureFrame({ case: "start", value: { args: ["cat"], env: { A: "b" }, stdin: true } });
    const sent = [
      start,
      futureFrame({ case: "stdin", value: Buffer.from("abc") }),
      futureFrame({ case: "stdinClose", value: {} }),
    ];
    using client = grpcJsClient(agent);
    const frames = await Array.fromAsync(client.call(GuestAgent.method.exec, sent));
    const output = frames.flatMap(({ frame }) => (frame.case === "stdout" ? [frame.value] : []));
    assert.equal(Buffer.concat(output).toString(), "abc");
  });

  test("the client ignores unknown fields in a command's response", async () => {
    const Exec = [
      futureFrame({ case: "started", value: { pid: 12 } }),
      futureFrame({ case: "stdout", value: Buffer.from("abc") }),
      futureFrame({ case: "exit", value: { code: 3 } }),
    ];
    await using agent = await startStandIn({ service: GuestAgent, streams: { Exec } });
    const { stdout, exitCode } = await agent.client.run(["make"]);
    assert.deepEqual([Buffer.from(stdout).toString(), exitCode], ["abc", 3]);
  });
});

describe("unknown enum values from a newer client", () => {
  test("the agent rejects an unknown enum value and names its field", async () => {
    await using agent = await startAgent({ hooks: { pre_snapshot: { args: ["true"] } } });
    using guest = clientOf(agent);
    const hook = ask(agent, GuestAgent.method.runHook, { kind: UNKNOWN as HookKind });
    const message = /42, but must be PRE_SNAPSHOT or POST_RESTORE/;
    await assert.rejects(hook, { code: 3, reason: "INVALID_FIELD", metadata: { field: "kind" }, message });
    const keep = { name: "kept", whenFull: UNKNOWN as ExecWhenFull };
    const call = ask(agent, GuestAgent.method.exec, { frame: { case: "start", value: { args: ["true"], keep } } });
    await assert.rejects(call, { code: 3, metadata: { field: "start.keep.when_full" } });
    assert.deepEqual(await guest.commands.list(), []);
  });
});

describe("unknown frames from a newer client", () => {
  test("an Exec call fails if the client sends an unknown frame", async () => {
    await using agent = await startAgent();
    const start = create(ExecFrameSchema, {
      frame: { case: "start", value: { args: ["sleep", "1000"], stdin: true } },
    });
    using client = grpcJsClient(agent);
    const call = Array.fromAsync(client.call(GuestAgent.method.exec, [start, ofTheFuture(create(ExecFrameSchema))]));
    await assert.rejects(call, /that this agent does not know/);
  });
});

describe("unknown enum values from a newer agent", () => {
  test("the client reports a newer agent's unknown file type as unknown", async () => {
    const stat = { type: UNKNOWN, size: 3n };
    await using trees = await startStandIn({
      service: FileTree,
      streams: { List: [{ entries: [{ name: Buffer.from("portal"), stat }] }] },
    });
    const entries = await Array.fromAsync(trees.client.files.opendir("/x"), ({ name, type }) => [name, type]);
    assert.deepEqual(entries, [["portal", "unknown"]]);
    await using agent = await startStandIn({
      service: GuestAgent,
      streams: { ReadFile: [{ stat }, { data: Buffer.from("abc") }] },
    });
    const content = agent.client.files.createReadStream("/portal");
    assert.equal((await content.toArray()).join(""), "abc");
    assert.equal((await content.attributes)?.type, "unknown");
  });

  test("the client ignores a report of dropped bytes for an unknown stream", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      streams: {
        Exec: [
          { frame: { case: "started", value: { pid: 12, kept: true, execId: "1" } } },
          { frame: { case: "gap", value: { stream: UNKNOWN, bytes: 5n } } },
          { frame: { case: "stdout", value: Buffer.from("abc") } },
          { frame: { case: "exit", value: { code: 0 } } },
        ],
      },
      answers: { EndExec: () => ({}) },
    });
    const events: KeptEvent[] = [];
    const options = { forget: false, failOnGap: true, onEvent: (event: KeptEvent) => void events.push(event) };
    const command = agent.client.start(["make"], { keep: { name: "build" }, ...options });
    command.stderr.resume();
    assert.equal((await Array.fromAsync(command.stdout)).join(""), "abc");
    assert.equal((await command.wait()).exitCode, 0);
    assert.deepEqual(events, []);
  });
});
