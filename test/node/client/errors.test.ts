import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { Metadata, status } from "@grpc/grpc-js";
import { guestError, mayConnect, readErrorDetails } from "../../../src/node/client/errors/errors.ts";
import { ErrorInfoSchema } from "../../../src/shared/gen/google/rpc/error_details_pb.ts";
import type { Reason } from "../../../src/agent/domain/index.ts";
import { type AgentReason, ERROR_CODES, type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { rawGrpcServer } from "../../fixtures/raw-grpc-server.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";

const agent = forAllTests(await startAgent());

const CALL = {
  method: "Exec",
  service: "svc.guest.v1alpha1.GuestAgent",
  signal: undefined,
  agentVersion: undefined,
  linkFailure: undefined,
};

function failed(code: status, details: string, call: Partial<Parameters<typeof guestError>[1]> = {}) {
  const error = Object.assign(new Error(details), { code, details, metadata: new Metadata() });
  return guestError(error, { ...CALL, ...call });
}

describe("guestError", () => {
  test("guestError sets the status name, and grpc-js's error as the cause", () => {
    const error = failed(status.NOT_FOUND, "no such thing");
    assert.deepEqual(
      [error.name, error.status, error.code, error.message],
      ["GuestError", "NOT_FOUND", "NOT_FOUND", "no such thing"],
    );
    assert.deepEqual([error.reason, error.metadata, error.nextStep], [undefined, {}, undefined]);
    assert.ok(error.cause instanceof Error);
  });

  test("guestError suggests a next step for each connection failure", () => {
    for (const [details, step] of [
      ["No connection established. Last error: Error: connect ECONNREFUSED 127.0.0.1:1", /agent runs/],
      ["Error: self-signed certificate in certificate chain", /caPem/],
      ["Hostname/IP does not match certificate's altnames", /serverName/],
      ["SSL routines:ssl3_get_record:wrong version number", /not a guest agent/],
      ["Failed to connect (2026-01-01)", /check the port and the client certificate/],
      ["Connection dropped", /taken effect/],
    ] as const) {
      assert.match(failed(status.UNAVAILABLE, details).nextStep ?? "", step, details);
    }
    assert.match(failed(status.DEADLINE_EXCEEDED, "Deadline exceeded").nextStep ?? "", /more time/);
  });

  test("the message of a deadline error omits the internal steps of grpc-js", () => {
    for (const [details, message] of [
      [
        "Deadline exceeded after 2.003s,LB pick: 0.018s,remote_addr=127.0.0.1:7071",
        "no answer from the agent within 2.0 s",
      ],
      ["Deadline exceeded after 0.050s", "no answer from the agent within 50 ms"],
      ["Deadline exceeded after 10.141s,name resolution: 4.481s,Waiting for LB pick", "no connection within 10.1 s"],
    ] as const)
      assert.equal(failed(status.DEADLINE_EXCEEDED, details).message, message);
  });

  test("error codes and mayConnect() ignore words in host names and paths", () => {
    for (const [details, code, isWorthIt] of [
      ["Name resolution failed for target dns:ssl-guest-1:7071", "ADDRESS_UNREACHABLE", true],
      ["getaddrinfo EAI_AGAIN certificate.example", "ADDRESS_UNREACHABLE", true],
      ["connect ENOENT /run/alert unknown ca", "CONNECTION_REFUSED", false],
      ["No connection established. Last error: Error: connect ECONNREFUSED 10.0.0.1:7071", "CONNECTION_REFUSED", false],
      ["Error: certificate has expired", "SERVER_CERTIFICATE_EXPIRED", false],
      ["Error: self-signed certificate in certificate chain", "SERVER_CERTIFICATE_UNTRUSTED", false],
      ["Connection dropped", "CONNECTION_LOST", true],
      ["14 UNAVAILABLE: something new", "UNAVAILABLE", true],
    ] as const) {
      const error = failed(status.UNAVAILABLE, details);
      assert.deepEqual([error.code, mayConnect(error)], [code, isWorthIt], details);
    }
  });

  test("guestError uses the connection failure's message only for the status UNAVAILABLE", () => {
    const linkFailure = { code: "BRIDGE_FAILED", message: "the bridge command docker ended with status 1" } as const;
    assert.equal(failed(status.UNAVAILABLE, "Failed to connect", { linkFailure }).message, linkFailure.message);
    assert.equal(failed(status.DEADLINE_EXCEEDED, "Deadline exceeded", { linkFailure }).message, "Deadline exceeded");
  });

  test("guestError reports an HTTP 404 as such, not as a missing method", () => {
    assert.equal(
      failed(status.UNIMPLEMENTED, "Received HTTP status code 404").message,
      "Received HTTP status code 404",
    );
  });

  test("guestError maps an unknown status to UNKNOWN", () => {
    const unknown = JSON.parse("99") as status;
    assert.deepEqual([failed(unknown, "?").status, failed(unknown, "?").code], ["UNKNOWN", "UNKNOWN"]);
  });
});

describe("the library's sources", () => {
  const sources = globSync("src/node/client/**/*.ts").map((path) => readFileSync(path, "utf8"));

  test("every GuestError in the library has a code", () => {
    const made = sources.flatMap((text) => Array.from(text.matchAll(/new GuestError\((.*)\)/g), ([, parts]) => parts));
    assert.deepEqual(
      new Set(made),
      new Set([
        '{ status: "INVALID_ARGUMENT", code: "INVALID_ARGUMENT", message, metadata, cause }',
        "{ status: under, code, message, cause }",
        '{ status: "FAILED_PRECONDITION", code: "COPY_INCOMPLETE", message, metadata }',
        '{ status: "FAILED_PRECONDITION", code: "REMOVE_INCOMPLETE", message, metadata }',
        // Its code is that of a call whose deadline has passed.
        '{ status: "DEADLINE_EXCEEDED", message }',
        // What an agent says, with its reason.
        "{ status: under, ...details, ...cause, cause: shown, retryable }",
        // The same with the option that helps.
        "{ status, reason, message, metadata, cause }",
        // The same of a call that had begun.
        "{ ...parts, retryable: false }",
      ]),
    );
  });

  test("the library's type `Reason` lists exactly the agent's error reasons", () => {
    // tsc fails here if one of the two lacks a reason.
    const isSame: [Reason, AgentReason] extends [AgentReason, Reason] ? true : never = true;
    assert.ok(isSame);
  });

  test("ERROR_CODES does not inherit properties such as `constructor` from Object.prototype", () => {
    assert.equal((ERROR_CODES as Record<string, unknown>)["constructor"], undefined);
    assert.equal(new GuestError({ status: "UNKNOWN", reason: "constructor", message: "m" }).nextStep, undefined);
  });

  test("errors without a code are created only in the listed source files", () => {
    const paths = globSync("src/node/{client,credentials,sandboxes,tar,testing}/**/*.ts");
    const made = paths.flatMap((path) =>
      Array.from(readFileSync(path, "utf8").matchAll(/\bnew (\w*Error)\(/g), ([, name]) => `${path.slice(9)}: ${name}`),
    );
    assert.deepEqual(
      [...new Set(made)].filter((one) => !/: (?:Credentials|Guest|Sandbox|TestAgent)Error$/.test(one)).toSorted(),
      [
        "client/commands/process.ts: CommandError", // a GuestError with COMMAND_FAILED
        "client/commands/run.ts: CommandError", // the same
        "client/files/guest-file.ts: EntryError", // of one entry, which onFailure reports
        "client/files/read-tree.ts: EntryError", // FILE_CHANGED
        "client/files/upload-directory.ts: EntryError", // SOURCE_FAILED
        "client/files/write.ts: TypeError", // SOURCE_FAILED
        "client/grpc/grpc-texts.ts: Error", // the cause of DEADLINE_EXCEEDED
        "client/grpc/internals/grpc-js.ts: Error", // of a late write, whose call has its own status
        "client/grpc/link/attempt.ts: AttemptError", // of one address, which CONNECTION_LOST names
        "client/grpc/link/attempt.ts: Error", // the cause of the same
        "client/grpc/link/child.ts: Error", // the cause of the same, or of a bridge's failed start
        "client/grpc/link/liveness.ts: Error", // CONNECTION_LOST, by its text
        "client/web-streams.ts: Error", // the reason of the caller's own abort
        "sandboxes/state/agent-volumes.ts: Error", // INVALID_SPEC
        "sandboxes/state/journal.ts: Error", // JOURNAL_FAILED
        "sandboxes/substrate/lasting-fetch.ts: Error", // of an aborted request whose reason is not an Error
        "sandboxes/substrate/tracing.ts: Error", // the reason of an event
        "tar/entry-error.ts: EntryError", // FILE_CHANGED
        "tar/format.ts: Error", // of writing an archive, which guestctl alone does
        "tar/format.ts: TarError", // ANSWER_UNREADABLE
        "tar/generated.ts: EntryError", // of one entry, which onFailure hears of
        "tar/local-tree.ts: EntryError",
        "tar/names.ts: TarError",
        "tar/read.ts: TarError",
        "tar/thread/copy-thread.ts: Error", // SOURCE_FAILED or DESTINATION_FAILED
        "tar/thread/entry-receiver.ts: Error", // the same
        "tar/thread/filter-link.ts: Error", // of an answer without its message, SOURCE_FAILED
        "tar/thread/local-items.ts: EntryError", // of one entry, which onFailure reports
        "tar/thread/main.ts: Error", // of a module that is not in its thread
        "tar/thread/plain-error.ts: EntryError", // errors of the thread, as it threw them
        "tar/thread/plain-error.ts: Error",
        "tar/thread/plain-error.ts: TarError",
        "tar/thread/plain-error.ts: UnpackError",
        "tar/thread/read-local.ts: Error", // of a reading that its caller has ended
        "tar/unpack.ts: TarError",
        "tar/unpack.ts: UnpackError", // DESTINATION_FAILED
        "tar/whole.ts: TarError",
      ],
    );
  });
});

/** A google.rpc.Status with details of the given types. */
function statusOf(message: string, details: readonly { typeUrl: string; value: Uint8Array }[]): Uint8Array {
  const writer = new BinaryWriter().tag(1, WireType.Varint).int32(5).tag(2, WireType.LengthDelimited).string(message);
  for (const detail of details) {
    writer.tag(3, WireType.LengthDelimited).bytes(toBinary(AnySchema, create(AnySchema, detail)));
  }
  return writer.finish();
}

const info = {
  typeUrl: "type.googleapis.com/google.rpc.ErrorInfo",
  value: toBinary(
    ErrorInfoSchema,
    create(ErrorInfoSchema, { reason: "NO_SPACE", domain: "svc.guest", metadata: { path: "/x" } }),
  ),
};

describe("readErrorDetails", () => {
  test("readErrorDetails finds message, reason and metadata among other details", () => {
    const other = { typeUrl: "type.googleapis.com/google.rpc.DebugInfo", value: Buffer.from([1, 2, 3]) };
    assert.deepEqual(readErrorDetails(statusOf("100 % größer", [other, info])), {
      message: "100 % größer",
      reason: "NO_SPACE",
      metadata: { path: "/x" },
    });
  });

  test("an error's metadata may have names such as `constructor`", async () => {
    using client = clientOf(agent);
    const error = await failureOf(client.files.stat("/no/such/file"));
    const { metadata } = error;
    assert.equal(Object.getPrototypeOf(metadata), Object.prototype);
    assert.deepEqual({ ...metadata }, { path: "/no/such/file", errno: "ENOENT", step: "stat" });
    assert.deepEqual(JSON.parse(JSON.stringify(metadata)), metadata);
    assert.deepEqual(structuredClone(metadata), metadata);
    assert.match(inspect(metadata), /^\{ \w+: '.*' \}$/);

    const names = JSON.parse('{"constructor": "c", "__proto__": "p", "hasOwnProperty": "h"}') as Record<string, string>;
    const value = toBinary(ErrorInfoSchema, create(ErrorInfoSchema, { reason: "R", metadata: names }));
    const decoded = readErrorDetails(statusOf("", [{ ...info, value }]))?.metadata ?? assert.fail();
    const made = new GuestError({ status: "UNKNOWN", message: "m", metadata: decoded }).metadata;
    assert.deepEqual(new Map(Object.entries(made)), new Map(Object.entries(names)));
    assert.equal(Object.getPrototypeOf(made), Object.prototype);
  });

  test("readErrorDetails returns only the message if there is no ErrorInfo", () => {
    assert.deepEqual(readErrorDetails(statusOf("plain", [])), { message: "plain", reason: undefined, metadata: {} });
  });

  test("readErrorDetails returns undefined for malformed bytes", () => {
    assert.equal(readErrorDetails(Buffer.from([0x12, 0xff, 0x01])), undefined);
    assert.equal(readErrorDetails(statusOf("cut", [info]).subarray(0, -4)), undefined);
  });
});

const EMPTY = Buffer.from([0, 0, 0, 0, 0]);
/** It has no bytes, but is marked as compressed. */
const COMPRESSED = Buffer.from([1, 0, 0, 0, 0]);

const CALLS: readonly (readonly [shape: string, call: (client: GuestClient) => Promise<unknown>])[] = [
  ["one answer", (client) => client.health()],
  ["a stream of answers", (client) => client.files.readFile("/x")],
  ["streams both ways", (client) => client.start(["true"]).wait()],
];

describe("an answer that the client cannot read", () => {
  for (const [shape, call] of CALLS) {
    test(`a call with ${shape} fails if the answer has an unknown compression`, async () => {
      await using server = await rawGrpcServer((stream) => stream.end(COMPRESSED), { "grpc-encoding": "unheard-of" });
      const error = await failureOf(call(server.client));
      assert.deepEqual([error.status, error.code], ["INTERNAL", "ANSWER_UNREADABLE"]);
      assert.match(error.message, /cannot be read, .*compress/);
    });
  }

  test("a unary call fails with UNIMPLEMENTED if the response has two messages", async () => {
    await using server = await rawGrpcServer((stream) => stream.end(Buffer.concat([EMPTY, EMPTY])));
    const error = await failureOf(server.client.health());
    assert.equal(error.status, "UNIMPLEMENTED");
    assert.match(error.message, /Too many responses/);
  });

  test("a unary call fails with UNIMPLEMENTED if the response has no message", async () => {
    await using server = await rawGrpcServer((stream) => stream.end());
    assert.equal((await failureOf(server.client.health())).status, "UNIMPLEMENTED");
  });
});
