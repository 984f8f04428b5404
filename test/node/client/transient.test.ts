import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { GuestError, type GuestErrorParts, isConnectionLost, isTransient } from "../../../src/node/client/index.ts";
import { mayContinue } from "../../../src/node/client/errors/transient.ts";

describe("isTransient", () => {
  const transient: readonly (readonly [title: string, parts: Omit<GuestErrorParts, "message">])[] = [
    ["a lost connection", { status: "UNAVAILABLE", code: "CONNECTION_LOST" }],
    ["a connection that cannot be made", { status: "UNAVAILABLE", code: "CONNECTION_REFUSED" }],
    ["a broken HTTP/2 stream", { status: "INTERNAL" }],
    ["a token that is not accepted", { status: "UNAUTHENTICATED", reason: "UNAUTHENTICATED" }],
    ["a refused client certificate", { status: "PERMISSION_DENIED", code: "CLIENT_CERTIFICATE_REFUSED" }],
    ["an expired client certificate", { status: "PERMISSION_DENIED", code: "CLIENT_CERTIFICATE_EXPIRED" }],
    ["an agent that is shutting down", { status: "UNAVAILABLE", reason: "SHUTTING_DOWN" }],
    ["a replaced authority", { status: "UNAVAILABLE", reason: "AUTHORITY_REPLACED" }],
  ];
  const permanent: readonly (readonly [title: string, parts: Omit<GuestErrorParts, "message">])[] = [
    ["an aborted call", { status: "CANCELLED", code: "ABORT_ERR" }],
    ["a cancelled command", { status: "CANCELLED", code: "HUNG_UP" }],
    ["a detached call", { status: "CANCELLED", code: "DETACHED" }],
    ["an internal error that the agent explains", { status: "INTERNAL", reason: "INTERNAL" }],
    ["a missing file", { status: "NOT_FOUND", reason: "PATH_NOT_FOUND" }],
    ["a deadline of the caller", { status: "DEADLINE_EXCEEDED" }],
    ["a certificate chain that is too long", { status: "UNAVAILABLE", code: "CLIENT_CERTIFICATE_TOO_LONG" }],
  ];
  for (const [title, parts] of transient)
    test(`isTransient is true for ${title}`, () => assert.ok(isTransient(new GuestError({ ...parts, message: "" }))));
  for (const [title, parts] of permanent)
    test(`isTransient is false for ${title}`, () => assert.ok(!isTransient(new GuestError({ ...parts, message: "" }))));
  test("except for SHUTTING_DOWN errors, mayContinue returns the same as isTransient", () => {
    const isBoth = ([, parts]: (typeof transient)[number]): boolean =>
      mayContinue(new GuestError({ ...parts, message: "" }));
    assert.deepEqual(
      [...transient, ...permanent].filter(isBoth),
      transient.filter(([, { reason }]) => reason !== "SHUTTING_DOWN"),
    );
  });
  test("after isTransient or isConnectionLost returned false, TypeScript's type is still GuestError", () => {
    const error = new GuestError({ status: "NOT_FOUND", reason: "PATH_NOT_FOUND", message: "" });
    const codeOf = (failed: GuestError): string => {
      if (isConnectionLost(failed)) return `lost: ${failed.code}`;
      // The compiler accepts this only if both predicates leave the type GuestError where they are false.
      return isTransient(failed) ? `transient: ${failed.code}` : failed.code;
    };
    assert.equal(codeOf(error), "PATH_NOT_FOUND");
    const unknown: unknown = new GuestError({ status: "UNAVAILABLE", message: "" });
    assert.ok(isTransient(unknown) && unknown.code === "UNAVAILABLE");
  });
  test("isTransient is false for errors that are not a GuestError", () =>
    assert.ok(!isTransient(new Error("UNAVAILABLE"))));
});
