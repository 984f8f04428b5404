import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { describe, test } from "node:test";

const MAIN = join(import.meta.dirname, "../../src/main.ts");
const MEBIBYTE = 1024 * 1024;

describe("guest-agent bridge", { timeout: 60_000 }, () => {
  test("carries every byte both ways, and the end of its input", async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "bridge-test-"));
    t.after(() => rm(folder, { recursive: true, force: true }));
    const path = join(folder, "echo.sock");
    const server = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)).listen(path);
    t.after(() => server.close());
    await once(server, "listening");
    const child = spawn(process.execPath, [MAIN, "bridge", path], { stdio: ["pipe", "pipe", "pipe"] });
    const input = randomBytes(100 * MEBIBYTE);
    child.stdin.end(input);
    const [output, errors, [status]] = await Promise.all([
      buffer(child.stdout),
      text(child.stderr),
      once(child, "exit"),
    ]);
    assert.deepEqual([errors, status], ["", 0]);
    assert.ok(output.equals(input), `${output.length} bytes came back`);
  });

  test("says on standard error alone that nobody listens", async () => {
    const child = spawn(process.execPath, [MAIN, "bridge", "/no/such/socket"], { stdio: ["pipe", "pipe", "pipe"] });
    const [output, errors, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
    assert.deepEqual([output, status], ["", 69]);
    assert.match(errors, /\/no\/such\/socket: ENOENT/);
  });
});
