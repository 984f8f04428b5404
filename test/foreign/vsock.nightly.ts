import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { connect } from "../../src/node/client/index.ts";
import { startSocketAgent } from "../fixtures/agent.ts";
import { testDirectory } from "../fixtures/files.ts";
import { buildGo, provideGo } from "../fixtures/toolchains.ts";
import { vmmSocket } from "../fixtures/vmm-socket.ts";

const CONNECTIONS = 5;

const go = await provideGo();

describe("the vsock dialer of firecracker-go-sdk", { skip: typeof go === "string" ? go : false }, () => {
  test("Firecracker's vsock dialer for Go reaches the agent through a VMM's socket", async () => {
    if (typeof go === "string") return;
    const program = await buildGo(go, join(import.meta.dirname, "vsock-dialer"));
    await using agent = await startSocketAgent();
    await using directory = await testDirectory();
    const path = directory.at("vm.sock");
    await using device = await vmmSocket(path, agent.socketPath);
    // By then the agent has accepted the connection, and sent what it sends by itself.
    device.beforeAnswer = async () => {
      using other = connect({ address: `unix:${agent.socketPath}`, token: agent.token });
      await other.health();
    };
    for (let n = 0; n < CONNECTIONS; n++) {
      const { stdout } = await execa(program, [path, "7071", agent.token, `hello ${n}`]);
      assert.equal(stdout, `alive true\nHELLO ${n}\nexit 0`);
    }
    assert.deepEqual(
      device.asked,
      Array.from({ length: CONNECTIONS }, () => "CONNECT 7071"),
    );
  });
});
