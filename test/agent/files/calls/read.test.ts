import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { appendFile, mkdir, open, readFile, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { FileType } from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import { activityNs, clientOf } from "../../../fixtures/guest-client.ts";
import { failureOf, FileCalls, openFiles, testDirectory, failsWith, besides } from "../../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { memoryOf } from "../../../fixtures/proc.ts";

const CHUNK = 256 * 1024;
const GIB = 1024 ** 3;
/** Four times the memory that the agent may use while it transfers such a file. */
const LARGE = 400 * 1024 ** 2;

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const files = forAllTests(new FileCalls(agent));

describe("ReadFile", () => {
  for (const size of [0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17]) {
    it(`ReadFile returns ${size} bytes in full chunks, with the attributes first`, async () => {
      const content = randomBytes(size);
      await writeFile(directory.at(`of-${size}`), content, { mode: 0o640 });
      const { data, stat, sizes } = await files.read(directory.at(`of-${size}`));
      assert.ok(data.equals(content));
      assert.deepEqual([stat.type, stat.size, stat.mode], [FileType.REGULAR, BigInt(size), 0o640]);
      const isFull = (length: number, at: number): boolean =>
        length === CHUNK || (length < CHUNK && at === sizes.length - 1);
      assert.ok(sizes.every(isFull), String(sizes));
    });
  }

  it("ReadFile returns the requested range up to the end of the file", async () => {
    const content = randomBytes(2 * CHUNK);
    const path = directory.at("part");
    await writeFile(path, content);
    for (const [offset, length] of [
      [0, 10],
      [5, 0],
      [5, CHUNK],
      [CHUNK - 3, 6],
      [2 * CHUNK - 4, 100],
      [2 * CHUNK, 0],
      [3 * CHUNK, 7],
    ] as const) {
      const { data } = await files.read(path, { offset: BigInt(offset), length: BigInt(length) });
      const expected = content.subarray(offset, length === 0 ? undefined : offset + length);
      assert.ok(data.equals(expected), `${length} from ${offset}`);
    }
    const { stat, data } = await files.read(path, { offset: 2n ** 63n - 1n, length: 2n ** 64n - 1n });
    assert.deepEqual([stat.size, data.length], [BigInt(2 * CHUNK), 0]);
    const beyond = files.read(path, { offset: 2n ** 63n });
    await failsWith(beyond, status.INVALID_ARGUMENT, "INVALID_FIELD", { field: "offset" });
  });

  it("ReadFile reads beyond 4 GiB in a sparse file", async () => {
    const path = directory.at("sparse");
    await using file = await open(path, "w");
    const position = 4 * GIB + 12_345;
    await file.write("far out", position);
    const tail = await files.read(path, { offset: BigInt(position - 3) });
    assert.equal(tail.data.toString("latin1"), "\0\0\0far out");
    assert.equal(tail.stat.size, BigInt(position + 7));
    assert.equal((await files.read(path, { offset: BigInt(position), length: 3n })).data.toString(), "far");
  });

  it("ReadFile sends holes to clients that accept them, also for a requested range", async () => {
    const path = directory.at("holes");
    const [first, second] = [randomBytes(70_000), randomBytes(300_000)];
    const size = 6_000_000;
    await using file = await open(path, "w");
    await file.truncate(size);
    await file.write(first, 0, first.length, 1_000_000);
    await file.write(second, 0, second.length, 4_000_000);
    const whole = await readFile(path);
    for (const [offset, length] of [
      [0, 0],
      [500_000, 0],
      [500_000, 100_000],
      [1_000_000, 3_000_010],
      [1_010_000, 20],
      [5_500_000, 10_000_000],
      [size - 1, 1],
      [size, 0],
      [2 * size, 5],
    ] as const) {
      const parts: Buffer[] = [];
      let sent = 0;
      for await (const chunk of files.chunks({
        path,
        offset: BigInt(offset),
        length: BigInt(length),
        holes: true,
      })) {
        assert.equal(chunk.stat?.size, parts.length === 0 ? BigInt(size) : undefined);
        assert.ok(chunk.hole === 0n || chunk.data.length === 0, "a hole comes without data");
        sent += chunk.data.length;
        parts.push(Buffer.from(chunk.data), Buffer.alloc(Number(chunk.hole)));
      }
      const expected = whole.subarray(offset, length === 0 ? undefined : offset + length);
      assert.ok(Buffer.concat(parts).equals(expected), `${length} from ${offset}`);
      // Around an island up to a block more, where the file system keeps zeros.
      assert.ok(sent <= 2 * 8192 + first.length + second.length, `${sent} bytes for ${length} from ${offset}`);
    }
    const zeros = await files.read(path);
    assert.ok(zeros.data.equals(whole), "without the field they are zeros");
  });

  it("ReadFile reads a /proc file of size 0 to its end", async () => {
    const { data, stat } = await files.read("/proc/cpuinfo");
    assert.equal(stat.size, 0n);
    assert.ok(data.includes("processor"));
    assert.ok(data.toString().endsWith("\n\n"));
    const whole = await files.read(`/proc/${agent.pid}/cmdline`);
    const part = await files.read(`/proc/${agent.pid}/cmdline`, { offset: 3n, length: 5n });
    assert.equal(part.data.toString("latin1"), whole.data.subarray(3, 8).toString("latin1"));
    for (const offset of [2n ** 63n - 1n, 2n ** 63n - 2n ** 17n, 2n ** 62n])
      assert.equal((await files.read("/proc/version", { offset })).data.length, 0, "near the largest that there is");
  });

  const NEEDS_SYS = { skip: !existsSync("/sys/kernel") && "needs /sys" };
  it("ReadFile reads a /sys file with less content than its reported size", NEEDS_SYS, async () => {
    const { data, stat } = await files.read("/sys/kernel/mm/transparent_hugepage/enabled");
    assert.ok(BigInt(data.length) < stat.size);
    assert.match(data.toString(), /never/);
  });

  it("ReadFile ignores bytes appended to a file after it was opened", async () => {
    const content = randomBytes(8 * CHUNK);
    const path = directory.at("growing");
    await writeFile(path, content);
    const parts: Uint8Array[] = [];
    for await (const chunk of files.chunks({ path })) {
      if (parts.length < 4) await appendFile(path, randomBytes(CHUNK));
      parts.push(chunk.data);
    }
    assert.ok(Buffer.concat(parts).equals(content));
  });

  it("ReadFile of a shrinking file stops at its new end", async () => {
    const path = directory.at("shrinking");
    const original = 64 * 1024 * 1024;
    await writeFile(path, "");
    await truncate(path, original);
    let received = 0;
    let told = 0n;
    for await (const chunk of files.chunks({ path })) {
      if (received === 0) await truncate(path, CHUNK);
      told ||= chunk.stat?.size ?? 0n;
      received += chunk.data.length;
    }
    assert.equal(told, BigInt(original));
    assert.ok(received >= CHUNK && received < original, String(received));
  });

  it("ReadFile with `holes` stops at the new end of a shrinking file", async () => {
    const path = directory.at("shrinking-holes");
    await using file = await open(path, "w");
    const [island, apart, islands] = [randomBytes(CHUNK), 4 * CHUNK, 64];
    for (let at = 0; at < islands; at++) await file.write(island, 0, island.length, at * apart);
    await file.truncate(islands * apart);
    let received = 0n;
    for await (const { data, hole } of files.chunks({ path, holes: true })) {
      if (received === 0n) await file.truncate(3 * apart);
      received += BigInt(data.length) + hole;
    }
    assert.ok(received >= BigInt(apart) && received < BigInt(islands * apart), String(received));
  });

  it("ReadFile rejects everything but regular files and reports the type", async () => {
    // A failure must not leave a server that keeps this process alive.
    await using socket = createServer().listen(directory.at("socket"));
    await once(socket, "listening");
    await mkdir(directory.at("directory"));
    assert.equal(spawnSync("mkfifo", [directory.at("fifo")]).status, 0);
    for (const [path, type] of [
      [directory.at("socket"), "socket"],
      [directory.at("directory"), "directory"],
      [directory.at("fifo"), "fifo"],
      ["/dev/zero", "character_device"],
      ["/", "directory"],
    ] as const) {
      const refusal = failsWith(files.read(path), status.FAILED_PRECONDITION, "NOT_A_REGULAR_FILE", { path, type });
      assert.match((await refusal).message, new RegExp(`it is an? ${type.replace("_", " ")}, not a regular file`, "i"));
    }
  });

  it("ReadFile does not open a FIFO, so a waiting writer keeps waiting", async () => {
    const path = directory.at("written");
    assert.equal(spawnSync("mkfifo", [path]).status, 0);
    await using writer = besides("sh", "-c", 'exec 3> "$0"', path);
    // Asleep in the kernel while it opens the FIFO.
    const waits = async (): Promise<boolean> =>
      (await readFile(`/proc/${writer.pid}/wchan`, "utf8")).includes("wait_for_partner");
    await until(waits, "the writer waits in open(2)");
    await failureOf(files.read(path));
    assert.ok(await waits());
  });

  it("ReadFile closes its file when the call is cancelled", NEEDS_ROOT, async () => {
    const path = directory.at("cancelled");
    await using file = await open(path, "w");
    await file.truncate(8 * GIB);
    const abort = new AbortController();
    await assert.rejects(async () => {
      for await (const chunk of files.chunks({ path }, { signal: abort.signal })) {
        assert.ok(chunk.data.length > 0);
        abort.abort();
      }
    });
    await until(async () => !(await openFiles(agent.pid)).includes(path), `the agent has closed ${path}`);
  });

  it("ReadFile of 400 MiB uses less than 100 MiB of extra memory", async () => {
    const path = directory.at("large");
    await using file = await open(path, "w");
    await file.truncate(LARGE);
    const before = memoryOf(agent.pid).ownBytes;
    let most = 0;
    let received = 0;
    for await (const chunk of files.chunks({ path })) {
      received += chunk.data.length;
      if (received % (64 * CHUNK) === 0) most = Math.max(most, memoryOf(agent.pid).ownBytes);
    }
    assert.equal(received, LARGE);
    assert.ok(most - before < 100 * 2 ** 20, `${before} bytes before, ${most} while reading 400 MiB`);
  });

  it("ReadFile and WriteFile count as user activity, StatPath does not", async () => {
    using client = clientOf(agent);
    const atFirst = await activityNs(client);
    await files.stat(directory.path);
    assert.equal(await activityNs(client), atFirst);
    await files.read("/proc/version");
    const afterRead = await activityNs(client);
    assert.ok(afterRead > atFirst);
    await files.write({ path: directory.at("active") }, "x");
    assert.ok((await activityNs(client)) > afterRead);
  });
});
