import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { SOURCES_COMMAND, startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { addon } from "../../fixtures/spawning.ts";

/** Runs the agent as on a Node that exports nothing of OpenSSL. */
const WITHOUT_EXPORTS = `
  const { dlopen } = process;
  process.dlopen = (module, ...rest) => {
    dlopen.call(process, module, ...rest);
    for (const name of ["relaxCertificateChecks", "boundHandshakes", "reseedOpenssl"])
      module.exports[name] = () => -${constants.errno.ENOSYS};
  };
`;

test("this Node's OpenSSL has what verify_parameters.c and handshakes.c call", () => {
  assert.deepEqual([addon.boundHandshakes(), addon.relaxCertificateChecks()], [1, 1]);
});

test("where Node exports nothing of OpenSSL, the agent says what it cannot do, and serves", async () => {
  const [node, ...args] = SOURCES_COMMAND;
  const preload = `data:text/javascript,${encodeURIComponent(WITHOUT_EXPORTS)}`;
  await using agent = await startAgent({ command: [node, "--import", preload, ...args] });
  await agent.logged("certificate_times_enforced");
  await agent.logged("handshakes_unbounded");
  using guest = clientOf(agent);
  assert.equal((await guest.health()).ready, true);
});
