import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { execa } from "execa";
import { sourceCommand } from "../../scripts/testing/compiled.ts";
import { connect } from "../../src/node/client/index.ts";
import { reservedTransport } from "../../src/shared/transports.ts";
import { AGENT_COMMAND, startAgent } from "../fixtures/agent.ts";
import { thrownBy } from "../fixtures/guest-client.ts";

const NAMES = ["sharedkernel", "sharedkernel:7071", "sharedkernel:/run/guest.sock", "sharedkernel://tier"];
const EXPLANATION = /names the transport sharedkernel, which is reserved for a later tier and has no backend yet/;
const [NODE, ...GUESTCTL] = sourceCommand("node/guestctl/main.ts");
const USAGE = 64;
const CONFIG = 78;

describe("the reserved transport sharedkernel", () => {
  test("reservedTransport detects the transport `sharedkernel`, not that word in hosts or paths", () => {
    for (const name of NAMES) assert.match(reservedTransport(name) ?? "", EXPLANATION);
    for (const name of ["sharedkernel.example:7071", "/run/sharedkernel", "unix:/run/sharedkernel", "host:7071", ""]) {
      assert.equal(reservedTransport(name), undefined, name);
    }
  });

  test("the agent rejects the reserved transport `sharedkernel` and names the bootstrap variable", async () => {
    const noNetwork = ["SVC_GUEST_PORT", "SVC_TLS_CERT_FILE", "SVC_TLS_KEY_FILE", "SVC_TLS_CLIENT_CA_FILE"];
    await using agent = await startAgent({
      env: {
        SVC_GUEST_SOCKET: "sharedkernel:some-value",
        ...Object.fromEntries(noNetwork.map((name) => [name, undefined])),
      },
      awaitListening: false,
    });
    assert.equal((await agent.exited).code, CONFIG);
    assert.match(agent.output.stderr, /^guest-agent: SVC_GUEST_SOCKET: names the transport sharedkernel/);
    assert.doesNotMatch(agent.output.stderr, /some-value/);
  });

  test("the bridge rejects an address of the reserved transport `sharedkernel`", async () => {
    const [program, ...args] = AGENT_COMMAND;
    const bridge = [...args, "bridge", "sharedkernel:tier"];
    const { exitCode, stdout, stderr } = await execa(program, bridge, { reject: false });
    assert.deepEqual([exitCode, stdout], [USAGE, ""]);
    assert.match(stderr, EXPLANATION);
  });

  test("the client library rejects the reserved transport `sharedkernel` before it dials", () => {
    for (const address of NAMES) {
      const { message } = thrownBy(() => connect({ address, token: "t" }));
      assert.match(message, EXPLANATION);
      assert.match(message, /host:port, unix:\/path or a bridge/);
    }
  });

  test("guestctl rejects `sharedkernel:PORT` as a reserved transport, without dialling a host", async () => {
    const words = ["health", "--address", "sharedkernel:7071", "--credentials", import.meta.dirname];
    const { exitCode, stdout, stderr } = await execa(NODE, [...GUESTCTL, ...words], { reject: false });
    assert.deepEqual([exitCode === 0, stdout], [false, ""]);
    assert.match(stderr, EXPLANATION);
  });
});
