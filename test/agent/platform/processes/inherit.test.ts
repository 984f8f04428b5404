import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, launch, request, run } from "../../../fixtures/spawning.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { program, script } from "../../../fixtures/programs/index.ts";

test("it leads a group of its own in the agent's session", async () => {
  // proc_pid_stat(5): process id, name, state, parent, group, session.
  const { stdout } = await run(request(script("inherit", "/bin/cat", "/proc/self/stat")));
  const [pid, , , parent, group, session] = stdout.toString().split(" ");
  assert.equal(group, pid);
  assert.equal(session, parent);
});

test("it has no other descriptor, also where a seccomp filter refuses close_range, and the agent does not try all numbers", async () => {
  const command = script("inherit", "/bin/ls", "/proc/self/fd");
  for (const filter of [[], [program("no_close_range")]]) {
    const { stdout, stderr, end } = await run(request([...filter, ...command]));
    assert.deepEqual([stdout.toString(), stderr.toString(), end.code], ["0\n1\n2\n3\n", "", 0]);
  }
});

test("in a terminal it gets the foreground, so that it can read and is interrupted by Ctrl-C", async () => {
  const command = script("inherit", "/bin/sh", "-c", "stty -echo; echo ready; read line; echo got $line; exec cat");
  await using running = await launch(request(command, { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  await running.stdout.until(/ready/);
  await running.child.stdin?.write(bytes("typed\n"));
  await running.stdout.until(/got typed/);
  await running.child.stdin?.write(bytes("to cat\n"));
  await running.stdout.until(/to cat/);
  await running.child.stdin?.write(Uint8Array.of(3));
  assert.equal((await running.child.ended).code, 130);
});

test("a child whose agent's streams are pipes of another user owns them", NEEDS_ROOT, async () => {
  const command = script("inherit", "--uid=12345", "/bin/sh", "-c", "id -u > /dev/stdout");
  assert.equal((await run(request(command))).stdout.toString(), "12345\n");
});
