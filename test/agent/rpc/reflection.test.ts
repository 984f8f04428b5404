import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { create, createFileRegistry, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema, type FileDescriptorProto } from "@bufbuild/protobuf/wkt";
import {
  ServerReflection,
  type ServerReflectionRequestSchema,
  type ServerReflectionResponse,
} from "../../../src/shared/gen/grpc/reflection/v1/reflection_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { ask, grpcJsClient, RpcFailure } from "../../fixtures/rpc-clients.ts";

const agent = forAllTests(await startAgent());

type Question = NonNullable<MessageInitShape<typeof ServerReflectionRequestSchema>["messageRequest"]>;

async function answers(...questions: readonly Question[]): Promise<ServerReflectionResponse["messageResponse"][]> {
  using client = grpcJsClient(agent);
  const requests = questions.map((messageRequest) => ({ host: "h", messageRequest }));
  const responses: ServerReflectionResponse[] = [];
  for await (const response of client.call(ServerReflection.method.serverReflectionInfo, requests)) {
    assert.deepEqual([response.validHost, response.originalRequest?.host], ["h", "h"]);
    responses.push(response);
  }
  return responses.map(({ messageResponse }) => messageResponse);
}

/** The proto files of an answer, the first one first. */
async function filesOf(question: Question): Promise<FileDescriptorProto[]> {
  const [answer] = await answers(question);
  assert.ok(answer?.case === "fileDescriptorResponse", JSON.stringify(answer));
  return answer.value.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
}

/** In the order that a FileDescriptorSet requires. */
function importsFirst(files: readonly FileDescriptorProto[]): FileDescriptorProto[] {
  const ordered = new Set<FileDescriptorProto>();
  const add = (file: FileDescriptorProto): void => {
    for (const name of file.dependency) add(files.find((other) => other.name === name) ?? assert.fail(name));
    ordered.add(file);
  };
  for (const file of files) add(file);
  return [...ordered];
}

describe("grpc.reflection.v1.ServerReflection", () => {
  it("ServerReflection lists the services that Health lists", async () => {
    const { services } = await ask(agent, GuestAgent.method.health, {});
    const [list] = await answers({ case: "listServices", value: "" });
    assert.ok(list?.case === "listServicesResponse");
    assert.deepEqual(
      list.value.service.map(({ name }) => name),
      services,
    );
  });

  it("ServerReflection returns each service's file with all imports", async () => {
    const { services } = await ask(agent, GuestAgent.method.health, {});
    assert.ok(services.length > 7, services.join());
    for (const service of services) {
      const files = await filesOf({ case: "fileContainingSymbol", value: service });
      assert.ok(
        files[0]?.service.some(({ name }) => service.endsWith(`.${name}`)),
        service,
      );
      // Throws for a type that no file declares.
      const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: importsFirst(files) }));
      assert.equal(registry.getService(service)?.typeName, service);
    }
  });

  it("ServerReflection finds methods, messages, fields and enum values by name", async () => {
    const health = "svc/guest/v1alpha1/health.proto";
    for (const [symbol, file] of [
      ["svc.guest.v1alpha1.GuestAgent.Health", "svc/guest/v1alpha1/guest_agent.proto"],
      ["svc.guest.v1alpha1.HealthResponse", health],
      ["svc.guest.v1alpha1.HealthResponse.ready", health],
      ["grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto"],
      ["google.protobuf.Timestamp", "google/protobuf/timestamp.proto"],
    ] as const) {
      assert.equal((await filesOf({ case: "fileContainingSymbol", value: symbol }))[0]?.name, file, symbol);
    }
    assert.equal((await filesOf({ case: "fileByFilename", value: health }))[0]?.name, health);
  });

  it("ServerReflection answers unknown names with NOT_FOUND and continues", async () => {
    const found = await answers(
      { case: "fileByFilename", value: "etc/passwd" },
      { case: "fileContainingSymbol", value: "constructor" },
      { case: "fileContainingExtension", value: { containingType: "x.Y", extensionNumber: 1 } },
      { case: "allExtensionNumbersOfType", value: "svc.guest.v1alpha1.HealthResponse" },
      { case: "listServices", value: "" },
    );
    const codes = found.map((answer) => (answer.case === "errorResponse" ? answer.value.errorCode : answer.case));
    assert.deepEqual(codes, [5, 5, 5, "allExtensionNumbersResponse", "listServicesResponse"]);
  });

  it("ServerReflection requires the token", async () => {
    using client = grpcJsClient(agent);
    const call = client.call(ServerReflection.method.serverReflectionInfo, [], { token: "guess" });
    await assert.rejects(Array.fromAsync(call), (error) => error instanceof RpcFailure && error.code === 16);
  });
});
