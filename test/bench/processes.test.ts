import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LineProcess } from "../../scripts/bench/line-process.ts";
import { measureStart } from "../../scripts/bench/startup/start.ts";

const FAILING = ["sh", "-c", "echo 'no such option' >&2; exit 3"] as const;
const env = { PATH: process.env["PATH"] ?? "/usr/bin:/bin" };

describe("a program of the bench", () => {
  test("gives back lines for lines", async () => {
    await using cat = new LineProcess("cat");
    for (const line of ["one", "two"]) {
      cat.send(line);
      assert.equal(await cat.line(), line);
    }
  });

  test("that ends instead of printing a line is told with what it complained of, also when it gets one more", async () => {
    await using failing = new LineProcess(...FAILING);
    await assert.rejects(failing.line(), /^Error: sh ended: no such option$/);
    failing.send("a line");
    await assert.rejects(failing.line(), /^Error: sh ended: no such option$/);
  });

  test("that ends before it is up is told in the same way", async () => {
    await using failing = new LineProcess(...FAILING);
    await assert.rejects(
      failing.until(() => false),
      /^Error: sh ended: no such option$/,
    );
  });

  test("that is not there is told by its name", async () => {
    await using missing = new LineProcess("/no/such/program");
    await assert.rejects(missing.line(), /\/no\/such\/program/);
  });

  test("that ignores SIGTERM is killed", async () => {
    const deaf = new LineProcess("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done");
    assert.equal(await deaf.line(), "up");
    await deaf[Symbol.asyncDispose]();
    assert.throws(() => process.kill(deaf.pid, 0), { code: "ESRCH" });
  });
});

describe("a program whose start is measured", () => {
  test("is refused with what it said when it ends before it listens", async () => {
    const failing = measureStart({ command: FAILING, env, portIn: () => undefined });
    await assert.rejects(failing, /^Error: sh ended before it listened:\nno such option$/);
  });

  test("is refused when it is not there", async () => {
    const missing = measureStart({ command: ["/no/such/program"], env, portIn: () => undefined });
    await assert.rejects(missing, /\/no\/such\/program/);
  });
});
