import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Metadata, status } from "@grpc/grpc-js";
import { guestError } from "../../../src/node/client/errors.ts";

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
  test("has the status by name, and the error of grpc-js as its cause", () => {
    const error = failed(status.NOT_FOUND, "no such thing");
    assert.deepEqual(
      [error.name, error.status, error.code, error.message],
      ["GuestError", "NOT_FOUND", "NOT_FOUND", "no such thing"],
    );
    assert.deepEqual([error.reason, error.metadata, error.nextStep], [undefined, {}, undefined]);
    assert.ok(error.cause instanceof Error);
  });

  test("says what to do about a connection that cannot be made", () => {
    for (const [details, step] of [
      ["No connection established. Last error: Error: connect ECONNREFUSED 127.0.0.1:1", /agent runs/],
      ["Error: self-signed certificate in certificate chain", /caPem/],
      ["Hostname/IP does not match certificate's altnames", /serverName/],
      ["SSL routines:ssl3_get_record:wrong version number", /no guest agent/],
      ["Failed to connect (2026-01-01)", /takes this client certificate/],
      ["Connection dropped", /taken effect/],
    ] as const) {
      assert.match(failed(status.UNAVAILABLE, details).nextStep ?? "", step, details);
    }
    assert.match(failed(status.DEADLINE_EXCEEDED, "Deadline exceeded").nextStep ?? "", /more time/);
  });

  test("prefers what the link knows about a missing connection", () => {
    const linkFailure = "the bridge command docker ended with status 1";
    assert.equal(failed(status.UNAVAILABLE, "Failed to connect", { linkFailure }).message, linkFailure);
    assert.equal(failed(status.DEADLINE_EXCEEDED, "Deadline exceeded", { linkFailure }).message, "Deadline exceeded");
  });

  test("tells a method that is missing from an answer that is none", () => {
    assert.equal(failed(status.UNIMPLEMENTED, "unknown method").message, "the agent has no method Exec");
    assert.equal(
      failed(status.UNIMPLEMENTED, "", { agentVersion: "0.1.0" }).message,
      "the agent (version 0.1.0) has no method Exec",
    );
    assert.equal(
      failed(status.UNIMPLEMENTED, "Received HTTP status code 404").message,
      "Received HTTP status code 404",
    );
  });

  test("takes a status that it does not know for UNKNOWN", () => {
    const unknown = JSON.parse("99") as status;
    assert.deepEqual([failed(unknown, "?").status, failed(unknown, "?").code], ["UNKNOWN", "UNKNOWN"]);
  });
});
