import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import {
  type DescFile,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { encodeFile } from "../../../scripts/package/agent/descriptors/plugin.ts";
import { readyFile } from "../../../scripts/package/agent/descriptors/ready-file.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { FileChunkSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { ProcessSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/process_pb.ts";

const GENERATED = join(import.meta.dirname, "..", "..", "..", "src", "shared", "gen");

async function generatedFiles(): Promise<DescFile[]> {
  const modules = globSync("**/*_pb.ts", { cwd: GENERATED }).map((path) => pathToFileURL(join(GENERATED, path)).href);
  const exports = await Promise.all(
    modules.map(async (path) => Object.values((await import(path)) as object) as unknown[]),
  );
  return exports.flat().filter((value: unknown): value is DescFile => {
    return typeof value === "object" && value !== null && "kind" in value && value.kind === "file";
  });
}

/** The file in the bundle's form, with all its imports. */
function ready(file: DescFile): DescFile {
  return readyFile(JSON.stringify(encodeFile(file)), file.dependencies.map(ready));
}

function readyMessage<Desc extends DescMessage>(schema: Desc): Desc {
  const found = ready(schema.file).messages.find(({ typeName }) => typeName === schema.typeName);
  if (found === undefined) throw new Error(`${schema.typeName} is missing`);
  return found as Desc;
}

describe("prebuilt descriptors in the bundle", () => {
  test("prebuilt descriptors equal those that protobuf builds from the generated files", async () => {
    const files = await generatedFiles();
    assert.ok(files.length >= 8);
    for (const file of files) assert.deepEqual(encodeFile(ready(file)), encodeFile(file));
  });

  test("prebuilt and generated descriptors produce the same bytes and JSON", () => {
    const samples: readonly (readonly [DescMessage, JsonValue])[] = [
      [
        ProcessSchema,
        {
          args: ["a", "b"],
          env: { NAME: "value" },
          readyCmd: { args: ["c"], intervalMs: 5 },
          stopGraceMs: 7,
        },
      ],
      [ExecFrameSchema, { start: { args: ["sh"], terminal: { cols: 80, rows: 24 } } }],
      [ExecFrameSchema, { stdout: "AAEC" }],
      [FileChunkSchema, { stat: { size: "9007199254740993", mtime: "2026-01-02T03:04:05.678Z" }, data: "/w==" }],
    ];
    for (const [schema, json] of samples) {
      const own = readyMessage(schema);
      const bytes = toBinary(schema, fromJson(schema, json));
      assert.deepEqual(toBinary(own, fromJson(own, json)), bytes);
      assert.deepEqual(toJson(own, fromBinary(own, bytes)), json);
    }
  });
});
