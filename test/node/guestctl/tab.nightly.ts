import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { guestctlVariables, putGuestctl, runGuestctl, startIssuedAgent } from "./guestctl.ts";

for (const [shell, command, begin] of [
  ["bash", ["bash", "--norc", "--noprofile"], ""],
  ["zsh", ["zsh", "-f"], "autoload -U compinit; compinit -u -D;"],
  ["fish", ["fish", "--no-config"], "function fish_prompt; echo '> '; end;"],
] as const) {
  test(`Tab in a real ${shell} completes commands, options, paths and names`, async (t) => {
    if (spawnSync(shell, ["--version"]).status !== 0) {
      t.skip(`needs ${shell} (Debian: ${shell})`);
      return;
    }
    const directory = await mkdtemp(join(tmpdir(), "guestctl-tab-"));
    t.after(() => rm(directory, { recursive: true }));
    await using agent = await startIssuedAgent();
    await putGuestctl(directory);
    const env = { HOME: directory, PATH: `${directory}:${process.env["PATH"] ?? "/usr/bin:/bin"}` };
    const script = join(directory, "script");
    await writeFile(script, (await runGuestctl(["completion", shell], env)).stdout);
    assert.deepEqual(spawnSync(shell, ["-n", script], { encoding: "utf8", env }).stderr, "");
    await mkdir(join(directory, "work/a directory"), { recursive: true });
    await writeFile(join(directory, "work/a file"), "");
    await mkdir(join(directory, "far/away"), { recursive: true });
    await mkdir(join(directory, "wide/with space"), { recursive: true });
    const reaching = { ...guestctlVariables(agent), ...env };
    await runGuestctl(["exec", "--name", "server", "-d", "sleep", "1000"], reaching);

    await using terminal = new Terminal({ cols: 200, rows: 24, env: reaching, command });
    terminal.type(`${begin} . '${script}'; cd '${join(directory, "work")}'; expr 41 + 1\n`);
    await terminal.expect(/^42$/m);
    for (const [typed, completed] of [
      ["guestctl heal", /guestctl health$/m],
      ["guestctl health --cred", /guestctl health --credentials/],
      ["guestctl health --credentials a", /guestctl health --credentials a\\ directory/m],
      ["guestctl hook post", /guestctl hook post-restore$/m],
      ["guestctl cp a\\ fi", /guestctl cp a\\ file$/m],
      ["guestctl attach ser", /guestctl attach server$/m],
      [`guestctl cp :${directory}/fa`, /guestctl cp :\/[^:]+\/far\/$/m],
      [`guestctl cp :${directory}/far/`, /guestctl cp :\/[^:]+\/far\/away\/$/m],
      ...(shell === "bash"
        ? ([
            [`guestctl cp ":${directory}/wide/wi`, /guestctl cp ":\/[^:]+\/wide\/with space\/"?$/m],
            [`guestctl ls '${directory}/wide/wi`, /guestctl ls '\/[^:]+\/wide\/with space\/'?$/m],
            [`guestctl ls ${directory}/wide/wi`, /guestctl ls \/[^:]+\/wide\/with\\ space\/$/m],
          ] as const)
        : []),
    ] as const) {
      const ask = (): void => {
        terminal.key("C-u");
        terminal.type(typed);
        terminal.key("Tab");
      };
      ask();
      // What the agent does not tell within a second is not offered: a busy machine needs more than one.
      const again = setInterval(ask, 10_000);
      await terminal.expect(completed).finally(() => clearInterval(again));
    }
  });
}
