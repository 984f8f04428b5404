import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { startAgent } from "../fixtures/agent.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { testDirectory } from "../fixtures/files.ts";
import { clientOf } from "../fixtures/guest-client.ts";

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/agent/run.md"), "utf8");

/** The first block of a language in the page that matches. */
function block(language: string, matches: RegExp): string {
  const blocks = Array.from(
    PAGE.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, "gm")),
    ([, text = ""]) => text,
  );
  return blocks.find((text) => matches.test(text)) ?? assert.fail(`the page has no such block in ${language}`);
}

describe("docs/agent/run.md", () => {
  test("systemd-analyze finds no fault in the documented unit", async () => {
    await using directory = await testDirectory();
    const unit = directory.at("guest-agent.service");
    await writeFile(unit, block("ini", /ExecStart=/).replaceAll("/opt/guest-agent", standaloneDirectory()));
    const { all } = await execa("systemd-analyze", ["verify", unit], { all: true });
    assert.doesNotMatch(all, /guest-agent\.service/, "systemd says nothing of it");
    await writeFile(unit, block("ini", /ExecStart=/).replace("KillMode=mixed", "KillMode=never"));
    assert.match((await execa("systemd-analyze", ["verify", unit], { all: true, reject: false })).all, /kill mode/);
  });

  test("the documented curl line declares the sandbox idle, and Health reports it", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    assert.equal((await client.health()).idleDeclared, undefined);
    const env = { SVC_WORKLOAD_SOCKET: agent.workloadSocket };
    const { stdout } = await execa("sh", ["-euc", block("sh", /DeclareIdle/)], { env });
    const { declaredAt } = JSON.parse(stdout) as { readonly declaredAt: string };
    assert.equal((await client.health()).idleDeclared?.getTime(), Math.floor(Date.parse(declaredAt)));
  });
});
