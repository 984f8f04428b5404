import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import {
  appendFile,
  chmod,
  chown,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { execa } from "execa";
import type { GuestClient } from "../../src/node/client/index.ts";
import type { AgentOptions, RunningAgent } from "../fixtures/agent.ts";
import { testDirectory } from "../fixtures/files.ts";
import { clientOf, failureOf } from "../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../fixtures/privileges.ts";
import { GUESTCTL, guestctlVariables, startIssuedAgent } from "../node/guestctl/guestctl.ts";
import { agentOf, commitOf, keptReleases, methodsOf } from "./releases.ts";

/*
 * Copies with agents of earlier releases, built from their commits: an entry that cannot be read, or vanishes, is left
 * out, and everything else is copied, in both directions.
 */

/** Root without the capabilities by which it reads any file (capabilities(7)): then a mode is a mode. */
const WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] as const;
const ANOTHER_USER = 1234;
const FILES = 300;
const VANISHING = 100;

const nameOf = (at: number): string => `f${String(at).padStart(3, "0")}`;
const contentOf = (at: number): string => `${at} `.repeat(10_000);

for (const release of keptReleases()) {
  if (release.client === undefined) continue;
  const commit = await commitOf(release);
  if (commit === undefined) {
    process.stdout.write(`NOT RUN: copies with the agent of ${release.version}: this is not a clone with its commit\n`);
    continue;
  }
  describe(`copies with the agent of ${release.version}`, NEEDS_ROOT, () => {
    const hasTrees = methodsOf(release.schema).includes("FileTree/ReadTree");
    const ends = new AsyncDisposableStack();
    let agent: RunningAgent;
    let client: GuestClient;
    before(async () => {
      const options: AgentOptions = { command: await agentOf(commit), through: WITHOUT_CAPABILITIES };
      agent = ends.use(await startIssuedAgent(options));
      client = clientOf(agent, { serverName: undefined });
      ends.defer(() => client.close());
    });
    after(() => ends.disposeAsync());

    const cp = async (...args: string[]): Promise<readonly [status: number | undefined, lines: readonly string[]]> => {
      const [file, ...rest] = [...WITHOUT_CAPABILITIES, ...GUESTCTL, "cp", ...args];
      const { exitCode, stderr } = await execa(file, rest, { reject: false, env: guestctlVariables(agent) });
      return [exitCode, stderr.split("\n")];
    };

    it("`cp` counts each file of an archive once", async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("from/sub"), { recursive: true });
      await mkdir(directory.at("to"));
      for (const name of ["a", "sub/b", "sub/c"]) await writeFile(directory.at(`from/${name}`), name.repeat(1_000));
      const archive = await execa("tar", ["-cf", "-", "-C", directory.at("from"), "."], { encoding: "buffer" });
      const [file, ...words] = GUESTCTL;
      const copying = execa(file, [...words, "cp", "--json", "-", `:${directory.at("to")}`], {
        input: archive.stdout,
        env: guestctlVariables(agent),
      });
      const { files, bytes } = JSON.parse((await copying).stdout) as Record<string, unknown>;
      assert.deepEqual([files, bytes], [3, 11_000]);
      assert.equal(await readFile(directory.at("to/sub/c"), "utf8"), "sub/c".repeat(1_000));
    });

    it("`cp` of a single sparse file keeps its content and its holes", async () => {
      await using directory = await testDirectory();
      await writeFile(directory.at("file"), "begin");
      await truncate(directory.at("file"), 10_000_000);
      await appendFile(directory.at("file"), "end");
      for (const [from, to] of [
        [`:${directory.at("file")}`, directory.at("out")],
        [directory.at("file"), `:${directory.at("in")}`],
      ] as const) {
        const [status, lines] = await cp(from, to);
        assert.equal(status, 0, lines.join("\n"));
      }
      const content = await readFile(directory.at("file"));
      for (const name of ["out", "in"]) assert.ok((await readFile(directory.at(name))).equals(content), name);
      assert.ok((await stat(directory.at("out"))).blocks * 512 < 1_000_000);
    });

    for (const direction of ["in", "out"] as const) {
      const away = (path: string): string => (direction === "in" ? path : `:${path}`);
      const there = (path: string): string => (direction === "in" ? `:${path}` : path);

      it(`cp ${direction} with agent ${release.version} skips unreadable entries and copies the rest`, async () => {
        await using directory = await testDirectory();
        await mkdir(directory.at("from/closed"), { recursive: true });
        await mkdir(directory.at("from/sub"));
        for (const name of ["a", "secret", "sub/secret", "sub/z", "closed/x", "z"])
          await writeFile(directory.at(`from/${name}`), name.repeat(20_000));
        await symlink("a", directory.at("from/link"));
        for (const name of ["secret", "sub/secret", "closed"]) {
          await chown(directory.at(`from/${name}`), ANOTHER_USER, ANOTHER_USER);
          await chmod(directory.at(`from/${name}`), 0);
        }
        const [status, lines] = await cp(away(directory.at("from")), there(directory.at("to")));
        assert.equal(status, 1, lines.join("\n"));
        const copied = (await readdir(directory.at("to"), { recursive: true })).filter((name) => name !== "closed");
        assert.deepEqual(copied.toSorted(), ["a", "link", "sub", "sub/z", "z"]);
        for (const name of ["a", "sub/z", "z"])
          assert.equal(await readFile(directory.at(`to/${name}`), "utf8"), name.repeat(20_000));
        const named = (name: string): boolean => lines.some((line) => line.includes(`from/${name}: `));
        assert.deepEqual(["secret", "sub/secret", "closed"].filter(named), ["secret", "sub/secret", "closed"]);
        const [failed] = await cp("--fail-fast", away(directory.at("from")), there(directory.at("first")));
        assert.equal(failed, 125);
      });

      it(`cp ${direction} with agent ${release.version} skips vanishing files and copies the rest`, async () => {
        await using directory = await testDirectory();
        await mkdir(directory.at("from"));
        for (let at = 0; at < FILES; at += 1) await writeFile(directory.at(`from/${nameOf(at)}`), contentOf(at));
        const copying = cp(away(directory.at("from")), there(directory.at("to")));
        // As soon as the copy has begun to write.
        while ((await readdir(directory.at("to")).catch(() => [])).length === 0) await new Promise(setImmediate);
        for (let at = FILES - VANISHING; at < FILES; at += 1) await rm(directory.at(`from/${nameOf(at)}`));
        const [status, lines] = await copying;
        assert.ok(status === 0 || status === 1, lines.join("\n"));
        for (let at = 0; at < FILES - VANISHING; at += 1)
          assert.equal(await readFile(directory.at(`to/${nameOf(at)}`), "utf8"), contentOf(at), nameOf(at));
        for (const name of await readdir(directory.at("to")))
          assert.equal(await readFile(directory.at(`to/${name}`), "utf8"), contentOf(Number(name.slice(1))), name);
      });

      it(`the library copies ${direction} all that agent ${release.version} can read`, async () => {
        await using directory = await testDirectory();
        await mkdir(directory.at("from"));
        for (let at = 0; at < FILES; at += 1) await writeFile(directory.at(`from/${nameOf(at)}`), contentOf(at));
        const secret = directory.at("from/secret");
        await writeFile(secret, "secret");
        await chown(secret, ANOTHER_USER, ANOTHER_USER);
        await chmod(secret, 0);
        let isBegun = false;
        const failures: string[] = [];
        const options = {
          onFailure: ({ name }: { name: string }): number => failures.push(name),
          onBytes: (): void => {
            if (isBegun) return;
            isBegun = true;
            for (let at = FILES - VANISHING; at < FILES; at += 1) rmSync(directory.at(`from/${nameOf(at)}`));
          },
        };
        const copying =
          direction === "in"
            ? client.files.upload(directory.at("from"), directory.at("to"), options)
            : client.files.download(directory.at("from"), directory.at("to"), options);
        if (!hasTrees) {
          await assert.rejects(copying, { status: "UNIMPLEMENTED" });
          return;
        }
        // This process reads any file as root; the agent does not.
        if (direction === "out") {
          const error = await failureOf(copying);
          assert.equal(error.code, "COPY_INCOMPLETE");
          assert.ok(failures.includes("secret"), failures.join());
        } else {
          const error = await failureOf(copying);
          assert.equal(error.code, "COPY_INCOMPLETE");
          assert.ok(
            failures.length > 0 && failures.every((name) => name >= nameOf(FILES - VANISHING)),
            failures.join(),
          );
        }
        for (let at = 0; at < FILES - VANISHING; at += 1)
          assert.equal(await readFile(directory.at(`to/${nameOf(at)}`), "utf8"), contentOf(at), nameOf(at));
      });
    }
  });
}
