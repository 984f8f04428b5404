import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { guestctlVariablesOf, it } from "../sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../sandboxes/substrate.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { GUESTCTL_LINE, guestctlVariables, runGuestctl, startIssuedAgent } from "./guestctl.ts";

describe("the progress of guestctl sandbox", NEEDS_NAMESPACES, () => {
  it("on a terminal, guestctl shows its progress in one line and finally erases it", async ({ substrate }) => {
    const { begun, release } = substrate.hold("POST /instances/{id}/standby");
    const env = { ...guestctlVariablesOf(substrate), PS1: "" };
    await using terminal = new Terminal({ command: ["sh"], cols: 120, rows: 31, env });
    terminal.type(`${GUESTCTL_LINE} sandbox standby box; echo status-$?\n`);
    await begun;
    // Drawn again while the daemon is at work.
    await terminal.read(
      /\rstandby box: suspend it {2}\d+ s\p{Cc}\[K[^\n]*\rstandby box: suspend it {2}\d+ s\p{Cc}\[K/u,
    );
    release();
    await terminal.read(/\r\p{Cc}\[K(?:box: .*\r\n)?box is on standby; [^\n]*\r\nstatus-[013]\r\n/u);
  });

  it("without a terminal, guestctl prints its progress as one line per step", async ({ node, substrate }) => {
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

  test("`sandbox create --json` counts the uploaded bytes of the agent's volume", async () => {
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
    assert.equal(upload?.step, "create the agent's volume, unless it exists");
    assert.ok((upload.bytes?.sent ?? 0) > 0 && (upload.bytes?.total ?? 0) > 2 ** 20, JSON.stringify(upload));
  });
});

describe("the progress of guestctl cp", () => {
  test("`cp` shows elapsed seconds while stalled, and its duration when it ends", async (t) => {
    await using agent = await startIssuedAgent();
    await using directory = await testDirectory();
    await using relay = await relayTo(agent.port);
    // Not ended before the agent is stopped, whatever the machine is.
    const file = join(directory.path, "big");
    await writeFile(file, randomBytes(64 * 2 ** 20));
    const env = { ...guestctlVariables(agent), GUESTCTL_ADDRESS: `127.0.0.1:${relay.port}`, PS1: "" };
    await using terminal = new Terminal({ command: ["sh"], cols: 120, rows: 31, env });
    t.after(() => agent.kill("SIGCONT"));
    terminal.type(`${GUESTCTL_LINE} cp ${file} :${directory.path}/copy; echo status-$?\n`);
    await until(() => relay.bytes > 2 ** 20, "a MiB through the relay");
    agent.kill("SIGSTOP");
    await terminal.read(/\[=* *\] +[\d.]+\/64\.0 MiB {2}\d+ MiB\/s {2}1 s {2}big[^\n]*\r[^\n]* {2}2 s {2}big/);
    agent.kill("SIGCONT");
    await terminal.read(/\r\p{Cc}\[Kguestctl: copied 1 file, 64\.0 MiB, in \d+\.\d s\r\nstatus-0\r\n/u);
  });
});

describe("the line of guestctl while it connects", () => {
  test("on a terminal, guestctl counts the seconds while it connects", async () => {
    await using agent = await startIssuedAgent();
    await using relay = await relayTo(agent.port);
    const env = { ...guestctlVariables(agent), GUESTCTL_ADDRESS: `127.0.0.1:${relay.port}`, PS1: "" };
    const caught = relay.freeze();
    await using terminal = new Terminal({ command: ["sh"], cols: 200, rows: 31, env });
    terminal.type(`${GUESTCTL_LINE} health --connect-timeout 3500ms; echo status-$?\n`);
    await caught;
    const line = `connecting to 127\\.0\\.0\\.1:${relay.port}`;
    await terminal.read(new RegExp(`\\r${line} {2}1 s[^\\n]*\\r${line} {2}2 s`));
    await terminal.read(/\r\p{Cc}\[Kguestctl: [^\n]*CONNECT_TIMED_OUT[^\n]*\r\nstatus-125\r\n/u);
  });
});

interface Step {
  readonly step: string;
  readonly bytes?: { readonly sent: number; readonly total: number };
}
