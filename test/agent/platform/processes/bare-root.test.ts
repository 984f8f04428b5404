import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../../fixtures/awake.ts";
import { livingNamed } from "../../../fixtures/proc.ts";
import { script } from "../../../fixtures/programs/index.ts";
import { request, run } from "../../../fixtures/spawning.ts";

const EMPTIED = 'mount -t tmpfs none /proc && mount -t tmpfs none /dev && exec "$@"';

test("without /proc and /dev commands run on pipes, a terminal is refused, and the process group is killed", async (t) => {
  const namespace = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", EMPTIED, "sh"];
  const probe = await run(request([...namespace, "/bin/true"])).catch(() => undefined);
  if (probe === undefined || probe.stderr.length > 0) {
    t.skip(`needs root and unshare: ${probe?.stderr.toString() ?? "no unshare"}`);
    return;
  }
  const { stdout, stderr } = await run(request([...namespace, ...script("bare-root")]));
  assert.equal(stderr.toString(), "");
  const { killed, ...others } = JSON.parse(stdout.toString()) as { readonly killed: number };
  assert.deepEqual(others, { input: { code: 0, signal: 0, coreDumped: false }, terminal: "terminal: ENOENT" });
  const isLeft = (name: string): boolean => livingNamed(name).some(({ pid }) => pid === killed);
  await until(() => !["sh", "sleep"].some(isLeft), `process ${killed} has ended`);
});
