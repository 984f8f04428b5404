import assert from "node:assert/strict";
import { truncateSync } from "node:fs";
import { chown, lchown, link, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { GuestClient } from "../../../src/node/client/index.ts";
import { FileTree, type WriteTreeRequest } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { type StandInCall, startStandIn } from "../../fixtures/stand-in-agent.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

type Copy = (from: string, to: string, options: object, through?: GuestClient) => Promise<{ readonly files: number }>;

/** Both directions, which must do the same. */
const COPIES: readonly (readonly [string, Copy])[] = [
  ["files.upload", (from, to, options, through = client) => through.files.upload(from, to, options)],
  [
    "files.download",
    (from, to, options, through = client) => through.files.download(from, to, { umask: 0, ...options }),
  ],
];

for (const [method, copy] of COPIES)
  describe(`client.${method}`, () => {
    it(`${method} keeps owners and hard links only on request`, NEEDS_ROOT, async () => {
      await using directory = await testDirectory();
      const from = directory.at("from");
      await mkdir(`${from}/sub`, { recursive: true });
      await writeFile(`${from}/a`, "small");
      await writeFile(`${from}/b`, Buffer.alloc(200_000, "large"));
      await link(`${from}/a`, `${from}/sub/a`);
      await link(`${from}/b`, `${from}/sub/b`);
      await symlink("a", `${from}/link`);
      await chown(`${from}/a`, 1234, 5678);
      await chown(`${from}/sub`, 7, 8);
      await lchown(`${from}/link`, 9, 10);
      const kept = directory.at("kept");
      const { files } = await copy(from, kept, { keepOwners: true, hardLinks: true });
      assert.equal(files, 4);
      const owners = async (root: string): Promise<unknown[]> =>
        Promise.all(
          ["a", "sub", "link"].map(async (name) => {
            const { uid, gid } = await lstat(`${root}/${name}`);
            return [uid, gid];
          }),
        );
      assert.deepEqual(await owners(kept), [
        [1234, 5678],
        [7, 8],
        [9, 10],
      ]);
      for (const name of ["a", "b"])
        assert.equal((await stat(`${kept}/${name}`)).ino, (await stat(`${kept}/sub/${name}`)).ino, name);
      await copy(from, directory.at("plain"), {});
      assert.deepEqual(new Set((await owners(directory.at("plain"))).flat() as number[]), new Set([0]));
      assert.equal((await stat(directory.at("plain/b"))).nlink, 1);
      await copy(from, directory.at("given"), { keepOwners: true, uid: 42 });
      assert.deepEqual(await owners(directory.at("given")), [
        [42, 5678],
        [42, 8],
        [42, 10],
      ]);
    });

    it(`${method} copies a hard link whose first name is excluded`, async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("from"));
      await writeFile(directory.at("from/1"), "content");
      for (const name of ["2", "3"]) await link(directory.at("from/1"), directory.at(`from/${name}`));
      // The guest lists in an order of its own: whichever name is its first one is excluded once.
      for (const excluded of ["1", "2", "3"]) {
        const to = directory.at(`without-${excluded}`);
        await copy(directory.at("from"), to, { hardLinks: true, exclude: [excluded] });
        const names = (await readdir(to)).toSorted();
        assert.deepEqual(
          names,
          ["1", "2", "3"].filter((name) => name !== excluded),
        );
        for (const name of names) assert.equal(await readFile(`${to}/${name}`, "utf8"), "content");
        assert.equal((await stat(`${to}/${names[0]}`)).nlink, 2);
      }
    });

    it(`${method} with keepExisting adds only missing entries`, async () => {
      await using directory = await testDirectory();
      for (const side of ["from", "to"]) {
        await mkdir(directory.at(`${side}/sub`), { recursive: true });
        await writeFile(directory.at(`${side}/sub/both`), side);
      }
      await writeFile(directory.at("from/sub/new"), "new");
      await symlink("elsewhere", directory.at("from/link"));
      await writeFile(directory.at("to/link"), "a file");
      assert.equal((await copy(directory.at("from"), directory.at("to"), { keepExisting: true })).files, 1);
      assert.equal(await readFile(directory.at("to/sub/both"), "utf8"), "to");
      assert.equal(await readFile(directory.at("to/sub/new"), "utf8"), "new");
      assert.equal(await readFile(directory.at("to/link"), "utf8"), "a file");
    });

    it(`${method} with followLinks reports broken and looping links`, async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("from/sub"), { recursive: true });
      await mkdir(directory.at("outside"));
      await writeFile(directory.at("outside/file"), "outside");
      await symlink("file", directory.at("outside/inner"));
      await symlink("../outside", directory.at("from/directory"));
      await symlink("../../outside/file", directory.at("from/sub/link"));
      await symlink("nowhere", directory.at("from/broken"));
      await symlink("..", directory.at("from/sub/loop"));
      const failed: string[] = [];
      const onFailure = ({ name, errno }: { name: string; errno: string }): number => failed.push(`${name}: ${errno}`);
      const error = await failureOf(copy(directory.at("from"), directory.at("to"), { followLinks: true, onFailure }));
      assert.equal(error.code, "COPY_INCOMPLETE");
      assert.deepEqual(failed.toSorted(), ["broken: ENOENT", "sub/loop: ELOOP"]);
      for (const name of ["directory/file", "directory/inner", "sub/link"]) {
        assert.equal(await readFile(directory.at(`to/${name}`), "utf8"), "outside");
        assert.ok((await lstat(directory.at(`to/${name}`))).isFile(), name);
      }
      assert.ok((await lstat(directory.at("to/directory"))).isDirectory());
    });

    it(`${method} accepts non-UTF-8 local paths and exclude patterns`, async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("from/node_modules/x"), { recursive: true });
      await mkdir(directory.at("from/build"));
      for (const name of ["kept", "a.log", "build/b.o", "node_modules/x/y"])
        await writeFile(directory.at(`from/${name}`), "x");
      const raw = Buffer.concat([Buffer.from(`${directory.path}/caf`), Buffer.from([0xe9])]);
      const exclude = ["node_modules", "*.log", "build/*.o"];
      if (method === "files.upload") {
        await client.files.download(directory.at("from"), raw);
        await client.files.upload(raw, directory.at("to"), { exclude });
      } else {
        await client.files.download(directory.at("from"), raw, { exclude });
        await client.files.upload(raw, directory.at("to"));
      }
      assert.deepEqual((await readdir(directory.at("to"), { recursive: true })).toSorted(), ["build", "kept"]);
    });

    it(`${method} resumes after a lost connection until its time limit`, async () => {
      await using directory = await testDirectory();
      await using relay = await relayTo(agent.port);
      using through = clientOf({ ...agent, port: relay.port });
      await mkdir(directory.at("from"));
      for (let at = 0; at < 200; at += 1) await writeFile(directory.at(`from/${at}`), `${at}`.repeat(5_000));
      let [cuts, bytes] = [0, 0];
      const options = {
        onBytes: (count: number): void => {
          bytes += count;
          if (bytes < 500_000 || cuts > 0) return;
          cuts += 1;
          relay.cut();
          relay.mend();
        },
        onReconnect: (): number => (cuts += 10),
      };
      const { files } = await copy(directory.at("from"), directory.at("to"), options, through);
      assert.deepEqual([files, cuts], [200, 11]);
      for (let at = 0; at < 200; at += 1)
        assert.equal(await readFile(directory.at(`to/${at}`), "utf8"), `${at}`.repeat(5_000));
      [bytes, cuts] = [0, 0];
      const away = {
        requestTimeoutMs: 3_000,
        onBytes: (count: number): void => {
          bytes += count;
          if (bytes > 500_000) relay.cut();
        },
        onReconnect: (): number => (cuts += 1),
      };
      const { status } = await failureOf(copy(directory.at("from"), directory.at("never"), away, through));
      // Without a limit for the whole call, each of ten attempts would have one of its own.
      assert.ok(cuts <= 1, `${cuts} attempts`);
      // The limit may be over before the connection is cut, or at that moment.
      if (cuts === 1) assert.equal(status, "DEADLINE_EXCEEDED");
    });

    it(`${method} has one time limit for all attempts`, async (context) => {
      await using directory = await testDirectory();
      await using relay = await relayTo(agent.port);
      using through = clientOf({ ...agent, port: relay.port });
      await mkdir(directory.at("from"));
      for (let at = 0; at < 200; at += 1) await writeFile(directory.at(`from/${at}`), `${at}`.repeat(5_000));
      // The clock of the limit: it passes during the third attempt, whatever time the attempts take.
      const now = performance.now.bind(performance);
      let passedMs = 0;
      context.mock.method(performance, "now", () => now() + passedMs);
      let [bytes, reconnects, isCut] = [0, 0, false];
      const limited = {
        requestTimeoutMs: 600_000,
        onBytes: (count: number): void => {
          bytes += count;
          if (bytes < 300_000 || isCut) return;
          isCut = true;
          relay.cut();
          relay.mend();
        },
        onReconnect: (): void => {
          [bytes, isCut] = [0, false];
          reconnects += 1;
          if (reconnects === 3) passedMs = limited.requestTimeoutMs;
        },
      };
      const { status } = await failureOf(copy(directory.at("from"), directory.at("to"), limited, through));
      assert.deepEqual([status, reconnects], ["DEADLINE_EXCEEDED", 3]);
    });
  });

describe("a large file that becomes shorter while it is uploaded", () => {
  const BYTES = 30_000_000;

  it("if a file shrinks, files.upload reports it and writes the others", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("from"));
    for (const name of ["a", "z"]) await writeFile(directory.at(`from/${name}`), name);
    await writeFile(directory.at("from/big"), Buffer.alloc(BYTES, "x"));
    let isCut = false;
    const onBytes = (): void => {
      if (!isCut) setImmediate(() => truncateSync(directory.at("from/big"), 0));
      isCut = true;
    };
    const error = await failureOf(client.files.upload(directory.at("from"), directory.at("to"), { onBytes }));
    assert.deepEqual([error.code, error.metadata["failed"]], ["COPY_INCOMPLETE", "1"]);
    assert.match(error.message, /big: ESTALE/);
    assert.deepEqual((await readdir(directory.at("to"))).toSorted(), ["a", "z"]);
  });

  it("if a file shrinks, `files.upload` to an older agent retries without that file", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("from"));
    for (const name of ["a", "z"]) await writeFile(directory.at(`from/${name}`), name);
    await writeFile(directory.at("from/big"), Buffer.alloc(BYTES, "x"));
    const calls: string[][] = [];
    const WriteTree = (call: StandInCall): void => {
      const names: string[] = [];
      calls.push(names);
      call.send({});
      call.on("data", (message) => {
        const { part } = message as WriteTreeRequest;
        if (part.case !== "items") return;
        names.push(...part.value.items.map(({ path }) => Buffer.from(path).toString()));
        if (names.includes("big")) truncateSync(directory.at("from/big"), 0);
        else if (names.includes("z")) {
          call.send({ done: true, items: BigInt(names.length) });
          call.end();
        }
      });
    };
    const answers = { SetAttributes: () => ({ stat: {} }) };
    const serves = { WriteTree, List: (call: StandInCall): void => call.end() };
    await using older = await startStandIn({ service: FileTree, serves, answers });
    const error = await failureOf(older.client.files.upload(directory.at("from"), "/there"));
    assert.deepEqual([error.code, error.metadata["failed"]], ["COPY_INCOMPLETE", "1"]);
    assert.deepEqual(calls, [
      ["a", "big"],
      ["a", "z"],
    ]);
  });
});
