import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import { restoreSequence } from "../../../src/node/client/index.ts";
import { ReleasedSchema } from "../../fixtures/released-schema.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";
import { failureOf } from "../../fixtures/guest-client.ts";

/** The released schema without one of its methods. */
function without(method: string): ReleasedSchema {
  const schema = new ReleasedSchema();
  schema.guestAgent.method = schema.guestAgent.method.filter(({ name }) => name !== method);
  return schema;
}

describe("a client of an older agent", () => {
  test("if the agent lacks a method, the error names the agent's version", async () => {
    await using agent = await startStandIn({
      service: without("RunHook").service(),
      answers: { Health: () => ({ alive: true }) },
      version: "0.0.9",
    });
    const { client } = agent;
    assert.equal(client.agentVersion, undefined);
    const before = await failureOf(client.snapshots.prepare());
    assert.deepEqual([before.status, before.code], ["UNIMPLEMENTED", "AGENT_TOO_OLD"]);
    assert.equal(before.message, "the agent has no method RunHook");
    assert.match(before.nextStep ?? "", /update the agent/);
    await client.health();
    assert.equal(client.agentVersion, "0.0.9");
    const after = await failureOf(client.snapshots.prepare());
    assert.equal(after.message, "the agent (version 0.0.9) has no method RunHook");
  });

  test("the error for a missing method names the required agent version", async () => {
    await using agent = await startStandIn({ service: new ReleasedSchema().service(), version: "0.1.0" });
    const { client } = agent;
    const tunnel = client.ports.connect(80).on("error", () => {});
    for (const [method, call, since = "0.2.0"] of [
      ["Open", () => tunnel.opened],
      ["WaitForPort", () => client.ports.waitFor(80)],
      ["List", () => client.files.opendir("/x")[Symbol.asyncIterator]().next()],
      ["MakeFolder", () => client.files.mkdir("/x")],
      ["MakeLink", () => client.files.symlink("y", "/x")],
      ["Remove", () => client.files.rm("/x")],
      ["Rename", () => client.files.rename("/x", "/y")],
      ["SetAttributes", () => client.files.setAttributes("/x", { mode: 0o600 })],
      ["ListExecs", () => client.commands.list()],
      ["EndExec", () => client.commands.end("x")],
      ["SignalExec", () => client.commands.signal("x", "SIGTERM")],
      ["Stop", () => client.stop()],
      ["ListPorts", () => client.ports.list(), "0.3.0"],
      ["WatchPorts", () => client.ports.watch().next(), "0.3.0"],
      ["Watch", () => client.files.watch("/x").next(), "0.4.0"],
      ["ListProcesses", () => client.commands.processes(), "0.4.0"],
      ["SignalProcess", () => client.commands.signalProcess({ pid: 2, startTicks: 1 }, "SIGTERM"), "0.4.0"],
      ["ReadTree", () => client.files.readTree("/x")[Symbol.asyncIterator]().next(), "0.3.0"],
    ] as const) {
      const { status, message, nextStep } = await failureOf(call());
      assert.equal(status, "UNIMPLEMENTED");
      const said = `^this agent(?: \\(version 0\\.1\\.0\\))? is older than ${since}, the first version with ${method}$`;
      assert.match(message, new RegExp(said));
      assert.match(nextStep ?? "", /update the agent/);
    }
  });

  test("the client accepts an older agent's answers, which lack newer fields", async () => {
    const schema = new ReleasedSchema();
    const health = schema.message("HealthResponse");
    health.field = health.field.filter(({ name }) => !["guest_time", "idle_declared", "ready_cmd_exit"].includes(name));
    const chunk = schema.message("FileChunk");
    chunk.field = chunk.field.filter(({ name }) => name === "data");
    const exit = schema.message("ExecExit");
    exit.field = exit.field.filter(({ name }) => ["code", "signal"].includes(name));
    await using agent = await startStandIn({
      service: schema.service(),
      answers: {
        Health: () => ({ alive: true, ready: true, lastUserActivity: { seconds: 7n } }),
        RunRestoreDuties: () => ({ entropyBytesMixed: 64 }),
        RunHook: () => ({}),
      },
      streams: { ReadFile: [{ data: Buffer.from("x") }], Exec: [{ frame: { case: "exit", value: { code: 3 } } }] },
    });
    const answer = await agent.client.health();
    assert.deepEqual([answer.alive, answer.ready, answer.readyCmdExit], [true, true, 0]);
    assert.deepEqual([answer.lastUserActivity?.getTime(), answer.guestTime], [7_000, undefined]);
    const result = await agent.client.run(["true"]);
    assert.deepEqual([result.exitCode, result.oomKilled, result.durationMs], [3, false, 0]);
    const file = agent.client.files.createReadStream("/x");
    assert.deepEqual(await Array.fromAsync(file, (part) => part.length), [1]);
    assert.equal(await file.attributes, undefined);
    assert.deepEqual(await Array.fromAsync(agent.client.files.readPieces("/x")), [Buffer.from("x")]);
    const { clockErrorMs, hook } = await restoreSequence(() => agent.redial());
    assert.deepEqual([clockErrorMs, hook.ran], [Number.NaN, false]);
  });
});

/** A text field that no release has. */
function textField(name: string, extra: { oneofIndex?: number } = {}) {
  const [type, label] = [FieldDescriptorProto_Type.STRING, FieldDescriptorProto_Label.OPTIONAL];
  return create(FieldDescriptorProtoSchema, { name, jsonName: name, number: 900, type, label, ...extra });
}

describe("a client of a newer agent", () => {
  test("the client ignores unknown frames of a newer agent", async () => {
    const schema = new ReleasedSchema();
    schema.message("ExecFrame").field.push(textField("weather", { oneofIndex: 0 }));
    schema.message("ExecExit").field.push(textField("epitaph"));
    await using agent = await startStandIn({
      service: schema.service(),
      streams: {
        Exec: [
          { frame: { case: "started", value: { pid: 12 } } },
          { frame: { case: "weather", value: "fair" } },
          { frame: { case: "stdout", value: Buffer.from("out") } },
          { frame: { case: "exit", value: { code: 5, outputComplete: true, epitaph: "it ran" } } },
        ],
      },
    });
    const result = await agent.client.run(["true"]);
    assert.deepEqual([result.stdout, result.exitCode, result.outputComplete], ["out", 5, true]);
  });
});
