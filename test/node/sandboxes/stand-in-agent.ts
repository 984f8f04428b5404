import { readFileSync } from "node:fs";
import { create, toBinary } from "@bufbuild/protobuf";
import { type handleUnaryCall, Metadata, Server, ServerCredentials } from "@grpc/grpc-js";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { StopResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";

// Answers Health, hooks and duties like an agent from before the freeze. With an argument also Stop, after which it
// goes on all the same. It is the first process of its instance, for which SIGTERM has no default action.
process.on("SIGTERM", () => process.exit(0));

const file = (variable: string): Buffer => readFileSync(process.env[variable] ?? "");
const method = (path: string, response: Uint8Array): object => ({
  path,
  requestStream: false,
  responseStream: false,
  requestDeserialize: (bytes: Buffer) => bytes,
  responseSerialize: () => Buffer.from(response),
});
const version = new Metadata();
version.set("svc-agent-version", "0.1.0");
const answer: handleUnaryCall<unknown, unknown> = (call, done) => {
  call.sendMetadata(version);
  done(null, {});
};

const server = new Server();
const health = toBinary(HealthResponseSchema, create(HealthResponseSchema, { alive: true, ready: true }));
const definition: Record<string, object> = {
  health: method("/svc.guest.v1alpha1.GuestAgent/Health", health),
  runHook: method("/svc.guest.v1alpha1.GuestAgent/RunHook", new Uint8Array()),
  runRestoreDuties: method("/svc.guest.v1alpha1.GuestAgent/RunRestoreDuties", new Uint8Array()),
};
if (process.argv[2] === "stop") {
  const stop = toBinary(StopResponseSchema, create(StopResponseSchema, { stopGraceMs: 100 }));
  definition["stop"] = method("/svc.guest.v1alpha1.Lifecycle/Stop", stop);
}
server.addService(definition as never, { health: answer, runHook: answer, runRestoreDuties: answer, stop: answer });
const pair = { private_key: file("SVC_TLS_KEY_FILE"), cert_chain: file("SVC_TLS_CERT_FILE") };
const credentials = ServerCredentials.createSsl(file("SVC_TLS_CLIENT_CA_FILE"), [pair], true);
server.bindAsync(`127.0.0.1:${process.env["SVC_GUEST_PORT"]}`, credentials, (error) => {
  if (error !== null) throw error;
});
