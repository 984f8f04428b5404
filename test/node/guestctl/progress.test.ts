import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFileSync } from "node:fs";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { guestctlVariablesOf, it } from "../sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../sandboxes/substrate.ts";
import { GUESTCTL, runGuestctl } from "./guestctl.ts";

describe("the progress of guestctl sandbox", NEEDS_NAMESPACES, () => {
  it("progress on a terminal is one line that is finally erased", async ({ substrate }) => {
    const { begun, release } = substrate.hold("POST /instances/{id}/standby");
    const env = { ...guestctlVariablesOf(substrate), PS1: "" };
    await using terminal = new Terminal({ command: ["sh"], cols: 120, rows: 31, env });
    terminal.type(`${GUESTCTL.join(" ")} sandbox standby box; echo status-$?\n`);
    await begun;
    // Drawn again while the daemon is at work.
    await terminal.read(
      /\rstandby box: suspend it {2}\d+ s\p{Cc}\[K[^\n]*\rstandby box: suspend it {2}\d+ s\p{Cc}\[K/u,
    );
    release();
    await terminal.read(/\r\p{Cc}\[K(?:box: .*\r\n)?box sleeps; [^\n]*\r\nstatus-[013]\r\n/u);
  });

  it("progress without a terminal is one line per step", async ({ node, substrate }) => {
    await node.create({ image: IMAGE, name: "gone" });
    const { id } = substrate.instances.get("gone");
    const headers = { authorization: `Bearer ${substrate.apiToken}` };
    await fetch(`${substrate.baseUrl}/instances/${id}`, { method: "DELETE", headers });
    const { stderr, stdout } = await runGuestctl(["sandbox", "sweep"], guestctlVariablesOf(substrate));
    assert.match(
      stderr,
      /^guestctl: sweep: 0 of 1 done\n(?:guestctl: sweep gone: delete the (?:instance|credential volume)\n)+/,
    );
    assert.equal(stdout, "removed gone\n");
  });

  test("progress with --json counts the uploaded bytes of the agent", async () => {
    await using substrate = await HttpSubstrate.start();
    appendFileSync(substrate.agentArchive, gzipSync(randomBytes(2 ** 20)));
    const { stdout, stderr } = await runGuestctl(
      ["sandbox", "create", "--name", "box", "--agent-port", String(substrate.agentPort), "--json", IMAGE],
      guestctlVariablesOf(substrate),
    );
    const steps = stderr
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as { progress: Step }).progress);
    assert.equal(typeof (JSON.parse(stdout) as { readonly duration_ms: unknown }).duration_ms, "number");
    const upload = steps.find(({ bytes }) => bytes !== undefined);
    assert.equal(upload?.step, "provide the agent's volume");
    assert.ok((upload.bytes?.sent ?? 0) > 0 && (upload.bytes?.total ?? 0) > 2 ** 20, JSON.stringify(upload));
  });
});

interface Step {
  readonly step: string;
  readonly bytes?: { readonly sent: number; readonly total: number };
}
