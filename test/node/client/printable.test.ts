import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { printable, restoreSequence } from "../../../src/node/client/index.ts";
import { SandboxError } from "../../../src/node/sandboxes/index.ts";
import { EntryError, TarError } from "../../../src/node/tar/index.ts";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";

/** A red line, a C1 control, a carriage return, a bell, reversed text and a line separator. */
const HOSTILE = "a\u001b[31m\u009b\r\u0007\u202eb\u2028";
const ESCAPED = String.raw`a\x1b[31m\x9b\x0d\x07\u202eb\u2028`;
/** Everything but line feed and tab that could control a terminal (ISO 6429, UAX #9). */
const RAW = /(?![\t\n])[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** Asserts that nothing that a program prints of an error and its causes controls its terminal. */
function assertPrintable(error: Error): void {
  for (let one: unknown = error; one instanceof Error; one = one.cause)
    for (const text of [one.message, one.stack ?? "", String(one)])
      assert.doesNotMatch(text, RAW, JSON.stringify(text));
}

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

describe("text of the server in errors", () => {
  it("printable() escapes terminal control characters, except tabs and newlines", () => {
    assert.equal(printable(`${HOSTILE}\n\tä`), `${ESCAPED}\n\tä`);
  });

  for (const status of ["FAILED_PRECONDITION", "UNAVAILABLE", "UNIMPLEMENTED", "INTERNAL"] as const)
    it(`the message and the cause of an error with ${status} are escaped`, async () => {
      await using standIn = await startStandIn({
        service: [GuestAgent, FileTree],
        serves: {
          Exec: (call) => call.fail(new AgentError(status, "INTERNAL", `command ${HOSTILE}`, { path: HOSTILE })),
          List: (call) => call.fail(new AgentError(status, "INTERNAL", `list ${HOSTILE}`, { path: HOSTILE })),
        },
      });
      for (const call of [() => standIn.client.run(["true"]), () => standIn.client.files.readdir("/x")]) {
        const error = await failureOf(call());
        assert.ok(error.message.endsWith(ESCAPED), error.message);
        assert.ok(error.cause instanceof Error);
        assertPrintable(error);
      }
    });

  it("the error of rm() escapes control characters in names from the agent", async () => {
    const leftEntries = [{ name: Buffer.from(HOSTILE), errno: HOSTILE }];
    await using standIn = await startStandIn({
      service: FileTree,
      answers: { Remove: () => ({ removed: 1n, left: 1n, leftEntries }) },
    });
    const error = await failureOf(standIn.client.files.rm("/x", { recursive: true }));
    assert.ok(error.message.includes(ESCAPED), error.message);
    assertPrintable(error);
  });

  it("a CommandError escapes control characters in the command's standard error", async () => {
    const script = String.raw`printf 'a\033[31m\302\233\r\007\342\200\256b\342\200\250.' >&2; exit 1`;
    const error = await failureOf(client.run(["sh", "-c", script], { check: true }));
    assert.equal(error.message, `sh failed with exit code 1: ${ESCAPED}.`);
    assertPrintable(error);
  });

  it("errors of file calls and copies escape control characters in file names", async () => {
    await using directory = await testDirectory();
    const path = directory.at(`no ${HOSTILE}`);
    for (const call of [
      () => client.files.readFile(path),
      () => client.files.stat(path),
      () => client.files.rm(path),
      () => client.files.readlink(directory.path + HOSTILE),
      () => client.files.download(path, directory.at("down")),
      () => client.files.upload(path, directory.at("up")),
    ])
      assertPrintable(await failureOf(call()));
    await client.files.mkdir(directory.at("from"));
    await client.files.writeFile(directory.at(`from/${HOSTILE}`), "");
    await client.files.mkdir(directory.at(`to/${HOSTILE}/x`), { recursive: true });
    assertPrintable(await failureOf(client.files.download(directory.at("from"), directory.at("to"))));
    await writeFile(directory.at("file"), "");
    assertPrintable(await failureOf(client.files.upload(directory.at("from"), directory.at(`file/${HOSTILE}`))));
  });

  it("restoreSequence escapes control characters in the agent's warnings", async () => {
    await using standIn = await startStandIn({
      service: GuestAgent,
      answers: {
        Health: () => ({ alive: true, ready: true, guestTime: { seconds: BigInt(Math.floor(Date.now() / 1000)) } }),
        RunRestoreDuties: () => ({ entropyBytesMixed: 64, degraded: HOSTILE }),
        RunHook: () => ({ ran: true }),
      },
    });
    const { warnings } = await restoreSequence(() => standIn.redial());
    const degraded = warnings.find(({ code }) => code === "DUTIES_DEGRADED");
    assert.equal(degraded?.message, `not all restore steps could be done: ${ESCAPED}`);
  });

  it("SandboxError, EntryError and TarError escape control characters in their messages", () => {
    for (const error of [
      new SandboxError("SUBSTRATE_REFUSED", HOSTILE),
      new EntryError("EIO", HOSTILE),
      new TarError(HOSTILE),
    ]) {
      assert.equal(error.message, ESCAPED);
      assertPrintable(error);
    }
  });
});
