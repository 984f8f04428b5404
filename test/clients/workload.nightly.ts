import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { provideGrpcio } from "../fixtures/python-packages.ts";
import { provideDebianPython } from "./python.ts";

/** A DeclareIdleResponse: a timestamp with seconds, and nanoseconds of up to 30 bits. */
const LENGTH = String.raw`(?:8|9|1\d)`;
const PYTHON_SAYS = new RegExp(`^${LENGTH} ${LENGTH}$`);
const OPTIONS = { all: true, reject: false, timeout: 300_000 } as const;

describe("a workload declares itself idle", () => {
  let agent: RunningAgent;
  before(async () => {
    agent = await startAgent();
  });
  after(() => agent[Symbol.asyncDispose]());

  const script = join(import.meta.dirname, "python", "declare_idle.py");
  for (const [make, provide] of [
    ["the newest grpcio of PyPI", provideGrpcio],
    ["the grpcio of Debian", provideDebianPython],
  ] as const) {
    test(`with ${make}, blocking and with asyncio`, async (t) => {
      const provided = await provide();
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const env = { PYTHONDONTWRITEBYTECODE: "1", PYTHONPATH: provided.path };
      const result = await execa(provided.python, [script, `unix:${agent.workloadSocket}`], { ...OPTIONS, env });
      assert.match(result.all ?? "", PYTHON_SAYS);
    });
  }

  test("with curl, by plain JSON", async () => {
    const path = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
    const options = ["-sSi", "--unix-socket", agent.workloadSocket, "-H", "content-type: application/json", "-d", "{}"];
    const { stdout } = await execa("curl", [...options, `http://localhost${path}`]);
    assert.match(stdout, /^HTTP\/1\.1 200 OK\r?\n[\s\S]*svc-agent-version: [\s\S]*\{"declaredAt":"[^"]+Z"\}$/i);
  });
});
