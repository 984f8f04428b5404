import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { guestctlVariables, putGuestctl, runGuestctl, startIssuedAgent } from "./guestctl.ts";

test("guestctl's completion works at the Tab key of a real zsh: commands, options, local and remote paths, names", async (t) => {
  if (spawnSync("zsh", ["--version"]).status !== 0) {
    t.skip("needs zsh (Debian: zsh)");
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), "guestctl-zsh-"));
  t.after(() => rm(folder, { recursive: true }));
  await using agent = await startIssuedAgent();
  await putGuestctl(folder);
  const env = { HOME: folder, PATH: `${folder}:${process.env["PATH"] ?? "/usr/bin:/bin"}` };
  const script = join(folder, "script");
  await writeFile(script, (await runGuestctl(["completion", "zsh"], env)).stdout);
  assert.deepEqual(spawnSync("zsh", ["-n", script], { encoding: "utf8", env }).stderr, "");
  await mkdir(join(folder, "work/a folder"), { recursive: true });
  await mkdir(join(folder, "far/away"), { recursive: true });
  const reaching = { ...guestctlVariables(agent), ...env };
  await runGuestctl(["exec", "--name", "server", "-d", "sleep", "1000"], reaching);

  await using terminal = new Terminal({ cols: 200, rows: 24, env: reaching, command: ["zsh", "-f"] });
  terminal.type(`autoload -U compinit; compinit -u -D; . '${script}'; cd '${join(folder, "work")}'; expr 41 + 1\n`);
  await terminal.expect(/^42$/m);
  for (const [typed, completed] of [
    ["guestctl heal", /guestctl health $/m],
    ["guestctl health --cred", /guestctl health --credentials/],
    ["guestctl health --credentials a", /guestctl health --credentials a\\ folder/m],
    ["guestctl hook post", /guestctl hook post-restore$/m],
    ["guestctl attach ser", /guestctl attach server$/m],
    [`guestctl cp :${folder}/fa`, /guestctl cp :\/[^:]+\/far\/$/m],
  ] as const) {
    terminal.key("C-u");
    terminal.type(typed);
    terminal.key("Tab");
    await terminal.expect(completed);
  }
});
