import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { closeSync, mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import { createSecureContext } from "node:tls";
import { buildNative } from "../../../scripts/build-native.ts";
import { garbageCollector } from "../../../src/agent/internals/index.ts";
import { ADDON_FILE, errnoName, loadAddon } from "../../../src/agent/native/index.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { addon, pipe } from "../../fixtures/spawning.ts";

const { EAGAIN, EINVAL } = constants.errno;

const { ca, server, client } = await issueCertificates();
const strangers = await issueCertificates();

test("the addon refuses to signal init, all processes at once, or its own group", () => {
  for (const pid of [1, 0, -1, -process.pid]) {
    assert.equal(addon.kill(pid, 0), -EINVAL);
    assert.equal(addon.killGroup(pid, 0), -EINVAL);
  }
});

test("the addon rejects process id 0 and buffer ranges out of bounds", () => {
  assert.equal(addon.openFilesLimitOf(0), -EINVAL);
  assert.ok(addon.openFilesLimitOf(process.pid) > 0);
  const buffer = Buffer.alloc(4);
  assert.equal(addon.read(0, buffer, 2, 3), -EINVAL);
  assert.equal(addon.read(0, buffer, -1, 2), -EINVAL);
  assert.equal(addon.write(1, buffer, 5, 0), -EINVAL);
});

test("a background writer accepts records up to its capacity without blocking", () => {
  const [ours, theirs] = pipe(true);
  const writer = new addon.BackgroundWriter(theirs, 1 << 20);
  const record = (number: number): Buffer => Buffer.alloc(4096, String(number % 10));
  let taken = 0;
  while (taken < 1000 && writer.write(record(taken))) taken++;
  assert.ok(taken >= 256, "what the writer holds, and what the pipe took meanwhile");
  assert.ok(taken < 1000);
  assert.equal(writer.drain(0), false);
  const page = Buffer.alloc(4096);
  for (let read = 0; read < taken;) {
    if (addon.read(ours, page, 0, page.length) === -EAGAIN) continue;
    assert.deepEqual(page, record(read++));
  }
  assert.equal(writer.drain(60_000), true);
  assert.equal(writer.write(Buffer.alloc((1 << 20) + 1)), false);
  closeSync(ours);
  closeSync(theirs);
});

test("a background writer writes to non-blocking descriptors, and discards output that nobody reads", () => {
  const [theirs, ours] = pipe(false);
  const writer = new addon.BackgroundWriter(theirs, 1 << 20);
  for (let count = 0; count < 64; count++) assert.equal(writer.write(Buffer.alloc(4096)), true);
  const buffer = Buffer.alloc(64 * 4096);
  for (let read = 0; read < buffer.length;) read += addon.read(ours, buffer, 0, buffer.length);
  assert.equal(writer.drain(60_000), true);
  closeSync(ours);
  assert.equal(writer.write(Buffer.alloc(10)), true);
  assert.equal(writer.drain(60_000), true);
  closeSync(theirs);
});

test("closed and garbage-collected FdWatch objects leak no memory", async () => {
  const [reader, writer] = pipe(true);
  const collect = garbageCollector();
  const openAndClose = async (count: number): Promise<number> => {
    for (let opened = 1; opened <= count; opened++) {
      new addon.FdWatch(addon.duplicate(reader), () => {}).close();
      if (opened % 1000 !== 0) continue;
      // libuv closes its handle in the next tick; only then may the object go.
      await yieldToEventLoop();
      collect("major");
      await yieldToEventLoop();
    }
    addon.trimHeap();
    return process.memoryUsage.rss();
  };
  const before = await openAndClose(20_000);
  const grownBytes = (await openAndClose(100_000)) - before;
  assert.ok(grownBytes < 100_000 * 40, `${grownBytes / 100_000} bytes a watch`);
  closeSync(reader);
  closeSync(writer);
});

const SOURCES = join(import.meta.dirname, "../../../src/agent/native");
const INTERFACE = /^export interface Addon \{\n(.*?)^\}/ms.exec(readFileSync(join(SOURCES, "addon.ts"), "utf8"))?.[1];
const DESCRIBED = [...(INTERFACE ?? "").matchAll(/^ {2}(?:readonly )?(\w+)[(:](.*?)[;)]/gms)].map(
  ([, name = "", parameters = ""]) => ({ name, parameters }),
);

test("the addon exports exactly the members of its TypeScript interface", () => {
  assert.deepEqual(Object.keys(addon).toSorted(), DESCRIBED.map(({ name }) => name).toSorted());
});

test("native functions have as many numeric parameters as their TypeScript declarations", () => {
  const header = readFileSync(join(SOURCES, "addon/addon.h"), "utf8");
  const inC = new Map([...header.matchAll(/F\("(\w+)", \w+, (\d),/g)].map(([, name, count]) => [name, Number(count)]));
  assert.ok(inC.size > 20, `${inC.size} functions of numbers found`);
  const described = DESCRIBED.filter(({ name }) => inC.has(name)).map(({ name, parameters }) => [
    name,
    parameters.split(",").filter((parameter) => parameter.trim() !== "").length,
  ]);
  assert.deepEqual(new Map(described as [string, number][]), inC);
});

test("errnoName returns the usual name of a positive or negative errno", () => {
  const names = ["ENOENT", "ENOENT", "EAGAIN", "ENOTSUP", "ENOEXEC", "E4095"];
  // ENOEXEC is none of libuv's.
  assert.deepEqual(
    [2, -2, 11, 95, 8, 4095].map((errno) => errnoName(errno)),
    names,
  );
});

test("loadAddon's error says why loading failed, or how to build the addon", async () => {
  assert.throws(() => loadAddon(["/nonexistent"]), {
    name: "AddonError",
    message: /(?=.*npm run build:native).*\/nonexistent/s,
  });
  await using directory = await testDirectory();
  writeFileSync(directory.at(ADDON_FILE), "not an ELF file, but long enough to be read as a header of one, perhaps");
  assert.throws(() => loadAddon([directory.path]), /invalid ELF header/);
});

test("buildNative does not rebuild an addon whose sources did not change", () => {
  const built = buildNative();
  const before = statSync(built);
  buildNative();
  assert.equal(statSync(built).ino, before.ino);
});

test("buildNative rejects an unknown architecture and names it", () => {
  assert.throws(() => buildNative("sparc"), /"sparc".*x64 or arm64/);
});

const LIMIT_BYTES = 1000;
const NUMBERS = 10;

async function readFiles(paths: readonly string[], limitBytes: number) {
  const answer = await addon.readFiles(Buffer.from(paths.map((path) => `${path}\0`).join("")), limitBytes);
  assert.ok(typeof answer !== "number");
  const found: { readonly numbers: readonly bigint[]; readonly text: string }[] = [];
  for (let at = 0; at < answer.length;) {
    const numbers = Array.from({ length: NUMBERS }, (_, n) => answer.readBigInt64LE(at + n * 8));
    const start = at + NUMBERS * 8;
    at = start + Number(numbers.at(-1));
    found.push({ numbers, text: answer.toString("latin1", start, at) });
  }
  return found;
}

test("readFiles returns whole files in order and skips missing or oversized ones", async () => {
  await using directory = await testDirectory();
  const paths = ["one", "missing", "directory", "empty", "large", "two"].map((name) => directory.at(name));
  const [one = "", , inDirectory = "", empty = "", large = "", two = ""] = paths;
  writeFileSync(one, "first");
  mkdirSync(inDirectory);
  writeFileSync(empty, "");
  writeFileSync(large, "");
  truncateSync(large, LIMIT_BYTES + 1);
  writeFileSync(two, "x".repeat(LIMIT_BYTES), { mode: 0o640 });
  for (const limitBytes of [LIMIT_BYTES, -1]) {
    const found = await readFiles(paths, limitBytes);
    const texts = limitBytes < 0 ? ["", "", "", "", "", ""] : ["first", "", "", "", "", "x".repeat(LIMIT_BYTES)];
    assert.deepEqual(
      found.map(({ text }) => text),
      texts,
    );
    assert.deepEqual(found[1]?.numbers.slice(0, 2), [BigInt(constants.errno.ENOENT), 0n]);
    for (const n of [0, 2, 3, 4, 5]) {
      const { dev, ino, size, mtimeNs, ctimeNs, mode, uid } = statSync(paths[n] ?? "", { bigint: true });
      const state = [0n, dev, ino, size, mtimeNs, ctimeNs, mode, uid, 0n, BigInt(found[n]?.text.length ?? -1)];
      assert.deepEqual(found[n]?.numbers, state);
    }
  }
});

function accepts(cert: string, key: string, ...authorities: string[]): boolean {
  return addon.acceptsTlsMaterial(Buffer.from(cert), Buffer.from(key), Buffer.from(authorities.join("\n")));
}

function encryptedKey(): string {
  return generateKeyPairSync("ec", {
    namedCurve: "P-256",
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "not the agent's" },
  }).privateKey;
}

describe("TLS material tried by the addon", () => {
  test("the addon accepts usable TLS material with intermediates and several authorities", () => {
    assert.equal(accepts(server.cert, server.key, ca), true);
    const cert = `${server.cert}\n${ca}`;
    assert.equal(accepts(cert, server.key, ca, strangers.ca), true);
    createSecureContext({ cert, key: server.key, ca: `${ca}\n${strangers.ca}`, minVersion: "TLSv1.3" });
  });

  test("the addon rejects invalid TLS material", () => {
    const broken = ca.replace(/[A-Za-z]{8}/, "!!!!!!!!");
    const refused: Readonly<Record<string, readonly [cert: string, key: string, ...authorities: string[]]>> = {
      "another's key": [server.cert, client.key, ca],
      "no certificate": ["", server.key, ca],
      "a key for a certificate": [server.key, server.key, ca],
      "a broken intermediate certificate": [`${server.cert}\n${broken}`, server.key, ca],
      "no key": [server.cert, "", ca],
      "a key with a passphrase": [server.cert, encryptedKey(), ca],
      "no authority": [server.cert, server.key],
      "a broken authority": [server.cert, server.key, broken],
      "a broken second authority": [server.cert, server.key, ca, broken],
    };
    for (const [what, material] of Object.entries(refused)) assert.equal(accepts(...material), false, what);
  });

  test("rejected TLS material leaves no error in OpenSSL's queue", () => {
    assert.equal(accepts("nothing", "nothing", "nothing"), false);
    createSecureContext({ cert: server.cert, key: server.key, ca });
    assert.equal(accepts(server.cert, server.key, ca), true);
  });
});
