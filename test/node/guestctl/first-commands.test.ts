import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { testFolder } from "../../fixtures/files.ts";
import { FIRST_COMMANDS } from "./first-commands.ts";
import { guestctlVariables, putGuestctl, runGuestctl, startIssuedAgent } from "./guestctl.ts";

/** Wide: no message wraps. */
const COLS = 400;
/** Writes a step at once, and goes on at a SIGHUP. */
const BUILD = "trap 'echo step 2' HUP; echo step 1; while :; do sleep 0.05; done";

const folder = forAllTests(await testFolder());
const agent = forAllTests(await startIssuedAgent());
const local = join(folder.path, "local");
const remote = join(folder.path, "remote");
const bin = join(folder.path, "bin");
for (const each of [join(local, "site"), remote, bin]) await mkdir(each, { recursive: true });
await writeFile(join(local, "notes.txt"), "notes\n");
await writeFile(join(local, "site/index.html"), "<p>\n");
await putGuestctl(bin);
const variables = guestctlVariables(agent);
const env = { ...variables, PATH: `${bin}:${variables["PATH"] ?? ""}`, REMOTE: remote, HOME: folder.path, PS1: "" };

describe("first commands of those who know another tool", () => {
  for (const [typed, shows, keys] of FIRST_COMMANDS) {
    test(typed, async () => {
      await runGuestctl(["exec", "--name", "build", "--replace", "-d", "sh", "-c", BUILD], env);
      await using terminal = new Terminal({ command: ["sh"], cols: COLS, rows: 50, env });
      terminal.type(`cd ${join(folder.path, "local")}; stty -echo; echo ready-$((1))\n`);
      await terminal.read(/ready-1\r\n/);
      terminal.type(`${typed}; echo status-$?\n`);
      if (keys !== undefined) {
        await terminal.read(shows);
        terminal.type(keys);
        await terminal.read(/status-\d+\r\n/);
        return;
      }
      const [said = "", status = ""] = await terminal.read(/^([^]*?)status-(\d+)\r\n/);
      assert.match(`${said.trim()} (${status})`, shows);
    });
  }
});
