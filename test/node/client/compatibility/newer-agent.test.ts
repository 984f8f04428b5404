import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import {
  EnumValueDescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import { FileType } from "../../../../src/node/client/index.ts";
import { ReleasedSchema } from "../../../fixtures/released-schema.ts";
import { startStandIn } from "../../../fixtures/stand-in-agent.ts";

/** A text field that no release has. */
function textField(name: string, extra: { oneofIndex?: number } = {}) {
  const { STRING } = FieldDescriptorProto_Type;
  const { OPTIONAL } = FieldDescriptorProto_Label;
  return create(FieldDescriptorProtoSchema, {
    name,
    jsonName: name,
    number: 900,
    type: STRING,
    label: OPTIONAL,
    ...extra,
  });
}

describe("a client of a newer agent", () => {
  test("passes over fields that it does not know", async () => {
    const schema = new ReleasedSchema();
    schema.message("HealthResponse").field.push(textField("mood"));
    await using agent = await startStandIn({
      service: schema.service(),
      answers: { Health: () => ({ alive: true, readyCmdExit: 4, mood: "serene" }) },
      version: "99.0.0",
    });
    const health = await agent.client.health();
    assert.deepEqual([health.alive, health.readyCmdExit], [true, 4]);
    assert.equal(agent.client.agentVersion, "99.0.0");
  });

  test("gives values of enumerations that it does not know as their numbers", async () => {
    const schema = new ReleasedSchema();
    const value = create(EnumValueDescriptorProtoSchema, { name: "FILE_TYPE_PORTAL", number: 42 });
    schema.enumeration("FileType").value.push(value);
    await using agent = await startStandIn({
      service: schema.service(),
      answers: { StatPath: () => ({ type: 42, size: 1n }) },
    });
    const stat = await agent.client.statPath("/portal");
    assert.deepEqual([stat.type, stat.size], [42, 1]);
    assert.ok(!Object.values<number>(FileType).includes(stat.type));
  });

  test("passes over frames of a command that it does not know", async () => {
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
    const result = await agent.client.run({ args: ["true"] });
    assert.deepEqual([result.stdout.toString(), result.exitCode, result.outputComplete], ["out", 5, true]);
  });
});
