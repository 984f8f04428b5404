import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecSessions } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Lifecycle } from "../../../src/shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import { Tunnel } from "../../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";

const UNAUTHENTICATED = "16";

const agent = forAllTests(await startAgent());

describe("every method of every management service wants the token", () => {
  for (const connection of ["a new connection", "a connection of which a call was let in"]) {
    test(`on ${connection}`, async () => {
      using peer = await RawHttp2.dial(agent);
      if (connection !== "a new connection") assert.equal(await peer.ask("Health", agent.token), "0");
      for (const { typeName, methods } of [GuestAgent, ExecSessions, FileTree, Lifecycle, Tunnel]) {
        for (const { name } of methods) {
          assert.equal(await peer.ask(`${typeName}/${name}`, "wrong-token-0123456789"), UNAUTHENTICATED, name);
        }
      }
    });
  }
});
