import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, statSync } from "node:fs";
import { mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { BLOCK_BYTES, writeHeader } from "../../../src/node/tar/index.ts";
import { until } from "../../fixtures/awake.ts";
import { type TestDirectory, testDirectory } from "../../fixtures/files.ts";
import { type StandInCall, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { agentForAllTests, GUESTCTL } from "./guestctl.ts";

const { env } = await agentForAllTests();

/** Entries that a copy may take after the signal: those of a turn of its event loop, and some that are on their way. */
const MOST_AFTER_SIGNAL = 5_000;
/** Half of those that fill a message to the agent. */
const HALF_A_MESSAGE = 256;
/** Links of each directory to the next, and how many follow each other. */
const [LINKS, LEVELS] = [16, 16];

/** A tree without an end to those who follow its links: it has LINKS to the power of LEVELS directories. */
async function endlessTree(directory: TestDirectory, files = 0): Promise<string> {
  for (let level = 0; level <= LEVELS; level++) {
    const levelPath = directory.at(`tree/${level}`);
    await mkdir(levelPath, { recursive: true });
    for (let at = 0; at < files; at++) await writeFile(`${levelPath}/file${at}`, "");
    if (level === LEVELS) continue;
    for (let at = 0; at < LINKS; at++) await symlink(`../${level + 1}`, `${levelPath}/${at}`);
  }
  return directory.at("tree/0");
}

function startCopy(args: readonly string[], stdout: number | "ignore" = "ignore", variables = env): ChildProcess {
  const [file, ...before] = GUESTCTL;
  return spawn(file, [...before, "cp", ...args], { env: variables, stdio: ["pipe", stdout, "pipe"] });
}

/** Interrupts a copy without an end, once it has taken some. Returns what it took after the signal. */
async function takenAfterSignal(copying: ChildProcess, taken: () => number, begun = 500): Promise<number> {
  const ended = once(copying, "exit");
  let stderr = "";
  copying.stderr?.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
  await until(
    () => taken() > begun || copying.exitCode !== null,
    () => stderr,
  );
  copying.kill("SIGINT");
  const before = taken();
  const [status, signal] = (await ended) as [number | null, string | null];
  assert.deepEqual([status, signal], [null, "SIGINT"], stderr);
  return taken() - before;
}

function entriesIn(directory: string): number {
  try {
    return readdirSync(directory, { recursive: true, encoding: "buffer" }).length;
  } catch {
    return 0;
  }
}

/** The agent may write what it has received for a moment longer. */
async function endlessDirectory(): Promise<TestDirectory> {
  const directory = await testDirectory();
  const remove = (): Promise<void> => rm(directory.path, { recursive: true, force: true, maxRetries: 20 });
  return { ...directory, [Symbol.asyncDispose]: remove };
}

describe("guestctl cp of an endless source ends at SIGINT", () => {
  it("`cp` ends at SIGINT while it walks an endless local tree", async () => {
    await using directory = await endlessDirectory();
    const tree = await endlessTree(directory, 20);
    const copying = startCopy(["-L", tree, `:${directory.at("in")}`]);
    const after = await takenAfterSignal(copying, () => entriesIn(directory.at("in")));
    assert.ok(after < MOST_AFTER_SIGNAL, `${after} entries after the signal`);
  });

  it("`cp` ends at SIGINT while it skips every file of a tree", async () => {
    await using directory = await endlessDirectory();
    const tree = await endlessTree(directory, 1_000);
    const copying = startCopy(["-L", "--exclude", "file*", tree, `:${directory.at("in")}`]);
    const after = await takenAfterSignal(copying, () => entriesIn(directory.at("in")), 10);
    assert.ok(after < HALF_A_MESSAGE, `${after} directories after the signal`);
  });

  it("`cp` ends at SIGINT while it unpacks an archive in the sandbox", async () => {
    await using directory = await endlessDirectory();
    await mkdir(directory.at("in"));
    const copying = startCopy(["-", `:${directory.at("in")}`]);
    const over = new AbortController();
    const archive = async (): Promise<void> => {
      for (let at = 0; !over.signal.aborted; at += 64) {
        const headers = Array.from({ length: 64 }, (_, index) => emptyFile(`file${at + index}`));
        if (copying.stdin?.write(Buffer.concat(headers)) === false)
          await once(copying.stdin, "drain", { signal: over.signal }).catch(() => undefined);
      }
    };
    copying.stdin?.on("error", () => over.abort());
    copying.once("exit", () => over.abort());
    const sent = archive();
    const after = await takenAfterSignal(copying, () => entriesIn(directory.at("in")));
    await sent;
    assert.ok(after < MOST_AFTER_SIGNAL, `${after} entries after the signal`);
  });

  it("`cp -L` ends at SIGINT while it archives an endless symlink tree", async () => {
    await using directory = await endlessDirectory();
    const tree = await endlessTree(directory, 20);
    const archive = openSync(directory.at("archive"), "w");
    const copying = startCopy(["-L", `:${tree}`, "-"], archive);
    closeSync(archive);
    const after = await takenAfterSignal(copying, () => statSync(directory.at("archive")).size / BLOCK_BYTES);
    assert.ok(after < MOST_AFTER_SIGNAL, `${after} entries after the signal`);
  });

  for (const to of ["a directory", "an archive"] as const)
    it(`cp ends at SIGINT while an agent sends endless entries into ${to}`, async () => {
      await using directory = await endlessDirectory();
      await writeFile(directory.at("token"), "any");
      let sent = 0;
      const ReadTree = (call: StandInCall): void => {
        void (async () => {
          call.send(items("directory", 1, { type: FileType.DIRECTORY }));
          for (;;) {
            sent += 500;
            if (!call.send(items(`file${sent}-`, 500))) await call.drained();
            await nextTurn();
          }
        })();
      };
      await using agent = await startStandIn({
        service: [GuestAgent, FileTree],
        answers: {
          Health: () => ({ alive: true, ready: true }),
          StatPath: () => ({ type: FileType.DIRECTORY, mode: 0o755 }),
        },
        serves: { ReadTree },
      });
      const archive = openSync(directory.at("archive"), "w");
      const isArchive = to === "an archive";
      const copying = startCopy(
        [":/any", isArchive ? "-" : directory.at("out"), "-H", agent.address, "-c", directory.path],
        archive,
      );
      closeSync(archive);
      const taken = (): number =>
        isArchive ? statSync(directory.at("archive")).size / BLOCK_BYTES : entriesIn(directory.at("out"));
      const after = await takenAfterSignal(copying, taken);
      assert.ok(after < MOST_AFTER_SIGNAL, `${after} entries after the signal`);
    });
});

function emptyFile(name: string): Buffer {
  const head = { linkTarget: Buffer.alloc(0), mode: 0o644, mtimeSeconds: 0, size: 0 };
  return writeHeader({ ...head, type: "file", name: Buffer.from(name) });
}

function items(name: string, count: number, more: object = {}): Record<string, unknown> {
  const fields = { type: FileType.REGULAR, mode: 0o755, ...more };
  const value = Array.from({ length: count }, (_, at) => ({ path: Buffer.from(`${name}${at}`), ...fields }));
  return { part: { case: "items", value: { items: value } } };
}
