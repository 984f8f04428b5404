import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cp, mkdir, symlink } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { freePort } from "../../scripts/machine/free-port.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { testDirectory } from "../fixtures/files.ts";
import { putGuestctl } from "../node/guestctl/guestctl.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Files of the credential directory that the pages give to the guest. */
const GUEST_FILES = ["token", "server.pem", "server.key", "ca.pem"];

/** The shell blocks under a heading of a page. */
function blocksUnder(page: string, heading: string): string[] {
  const [, after = ""] = readFileSync(join(ROOT, page), "utf8").split(`\n## ${heading}\n`);
  const [section = ""] = after.split("\n## ");
  return Array.from(section.matchAll(/^```sh\n([^]*?)^```$/gm), ([, block = ""]) => block);
}

/** Whether a line of the log has this text. */
async function reaches(log: AsyncIterable<string>, text: string): Promise<boolean> {
  const lines = log[Symbol.asyncIterator]();
  for (let line = await lines.next(); line.done !== true; line = await lines.next())
    if (line.value.includes(text)) return true;
  return false;
}

/** Pages, the heading of their first exec, and what its host's commands print. */
const PAGES: readonly (readonly [page: string, heading: string, prints: RegExp])[] = [
  ["README.md", "Use it in your VM", /^Linux [^]*^degraded: /m],
  ["docs/agent/run.md", "A complete start", /^test$/m],
];

describe("a new user", () => {
  for (const [page, heading, prints] of PAGES)
    test(`following only ${page} results in a working exec`, async () => {
      const [issue = "", start = "", host = "", ...more] = blocksUnder(page, heading);
      assert.deepEqual(more, []);
      await using directory = await testDirectory();
      await putGuestctl(directory.path);
      const port = await freePort();
      const guest = directory.at("guest");
      await mkdir(guest);
      await mkdir(directory.at("site"));
      // The clone's directory may have a space in its name, and the pages' lines have no quotes.
      await symlink(standaloneDirectory(), directory.at("agent"));
      /** A block with this machine's places in place of the guest's. */
      const here = (block: string): string =>
        block
          .replaceAll("/srv/credentials", guest)
          .replaceAll("/opt/guest-agent", directory.at("agent"))
          .replaceAll("/run/guest-agent", guest)
          .replaceAll(":/srv", `:${guest}`)
          .replaceAll("10.0.0.7", "127.0.0.1")
          .replaceAll("7071", String(port));
      const env = { PATH: [directory.path, process.env["PATH"]].join(delimiter) };
      const options = { cwd: directory.path, env, all: true, reject: false } as const;
      await execa("sh", ["-euc", issue], { ...options, reject: true });
      for (const file of GUEST_FILES) await cp(directory.at(`creds/${file}`), join(guest, file));
      // In a process group of its own: the shell of the README's lines forwards no signal.
      const agent = execa("sh", ["-euc", here(start)], { ...options, detached: true });
      const log = agent.iterable({ from: "all" });
      const { pid = 0 } = agent;
      assert.ok(pid > 0);
      try {
        assert.ok(await reaches(log, "management_listening"));
        // Without capabilities the restore is degraded, which is status 1.
        const { all } = await execa("sh", ["-uc", here(host)], options);
        assert.match(all, prints, all);
      } finally {
        process.kill(-pid, "SIGTERM");
        assert.ok(await reaches(log, '"agent_ended","status":143'));
        await agent;
      }
    });
});
