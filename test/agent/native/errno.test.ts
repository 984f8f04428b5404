import assert from "node:assert/strict";
import { test } from "node:test";
import { errnoName } from "../../../src/agent/native/index.ts";

test("an errno of either sign has its symbolic name", () => {
  assert.equal(errnoName(2), "ENOENT");
  assert.equal(errnoName(-2), "ENOENT");
});

test("an errno that libuv does not know has its name too", () => assert.equal(errnoName(8), "ENOEXEC"));

test("of two names for one errno the customary one is used", () => {
  assert.equal(errnoName(11), "EAGAIN");
  assert.equal(errnoName(95), "ENOTSUP");
});

test("an unknown errno is named by its number", () => assert.equal(errnoName(4095), "E4095"));
