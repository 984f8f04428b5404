import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, it } from "node:test";
import { connect, type GuestError, restoreDuties } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf, optionsFor } from "../../fixtures/guest-client.ts";

/*
 * One rule for all options that are numbers: Infinity means "no limit". Options that limit something accept it, unless
 * the agent has a maximum of its own. All other options reject it, and name themselves.
 */

const SOURCES = join(import.meta.dirname, "../../../src/node/client");
const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));
const directory = forAllTests(await testDirectory());
await client.files.writeFile(directory.at("file"), "content");

const server = createServer();
forAllTests({ [Symbol.dispose]: () => void server.close() });
await once(server.listen(0, "127.0.0.1"), "listening");
const listening = (server.address() as AddressInfo).port;

const endless = Number.POSITIVE_INFINITY;
const keep = { name: "infinity" };
const kept = (options: object): Promise<unknown> => client.start(["true"], { keep: { ...keep, ...options } }).wait();
const entropy = new Uint8Array(64);

/** Calls with an option that limits something, by the name of the option. They succeed. */
const ACCEPTED: Readonly<Record<string, () => unknown>> = {
  requestTimeoutMs: () => client.health({ requestTimeoutMs: endless }),
  "requestTimeoutMs of a command": () => client.run(["true"], { requestTimeoutMs: endless }),
  "requestTimeoutMs of a copy": () =>
    client.files.upload(directory.path, directory.at("copy"), { requestTimeoutMs: endless }),
  connectTimeoutMs: async () => {
    using other = connect({ ...optionsFor(agent), connectTimeoutMs: endless });
    await other.health();
  },
  timeoutMs: () => client.run(["true"], { timeoutMs: endless }),
  "timeoutMs of ports.waitFor": () => client.ports.waitFor(listening, { timeoutMs: endless }),
  "resume.timeoutMs": () => client.run(["true"], { keep, resume: { timeoutMs: endless } }),
  maxOutputBytes: () => client.run(["true"], { maxOutputBytes: endless }),
  depth: () => client.files.readdir(directory.path, { depth: endless }),
  maxEntries: () => client.files.readdir(directory.path, { maxEntries: endless }),
  length: () => client.files.readFile(directory.at("file"), { length: endless }),
  reachTimeoutMs: () =>
    restoreDuties(() => clientOf(agent), { reachTimeoutMs: endless, dutiesTimeoutMs: endless, hostTime: false }),
  dutiesTimeoutMs: () => restoreDuties(() => clientOf(agent), { dutiesTimeoutMs: endless, hostTime: false }),
};

/** Calls with an option that has no "no limit", by the name of the option in the error. */
const REJECTED: Readonly<Record<string, () => unknown>> = {
  offset: () => client.files.readFile(directory.at("file"), { offset: endless }),
  mode: () => client.files.mkdir(directory.at("made"), { mode: endless }),
  uid: () => client.files.mkdir(directory.at("made"), { uid: endless }),
  gid: () => client.files.symlink("file", directory.at("made"), { gid: endless }),
  "mode of writeFile": () => client.files.writeFile(directory.at("made"), "", { mode: endless }),
  size: () => client.files.writeFile(directory.at("made"), Readable.from([]), { size: endless }),
  mtimeNanos: () => client.files.setAttributes(directory.at("file"), { mtime: new Date(0), mtimeNanos: endless }),
  umask: () => client.files.download(directory.path, directory.at("down"), { umask: endless }),
  "uid of upload": () => client.files.upload(directory.path, directory.at("up"), { uid: endless }),
  intervalMs: () => client.watchUsage({ intervalMs: endless }).next(),
  entropyBytes: () => restoreDuties(() => clientOf(agent), { entropyBytes: endless, hostTime: false }),
  hookTimeoutMs: () => client.snapshots.completeRestore({ hookTimeoutMs: endless, hostTime: false }),
  timeoutMs: () => client.snapshots.prepare({ timeoutMs: endless }),
  freezeMs: () => client.snapshots.prepare({ freezeMs: endless }),
  graceMs: () => client.commands.end("infinity", { graceMs: endless }),
  killSignal: () => client.commands.end("infinity", { killSignal: endless }),
  "keep.bufferBytes": () => kept({ bufferBytes: endless }),
  "keep.lingerMs": () => kept({ lingerMs: endless }),
  "keep.awakeForMs": () => kept({ awakeForMs: endless }),
  "terminal.cols": () => client.run(["true"], { terminal: { cols: endless, rows: 24 } }),
  "terminal.rows": () => client.commands.attach("infinity", { terminal: { cols: 80, rows: endless } }).wait(),
  stdoutOffset: () => client.commands.attach("infinity", { stdoutOffset: endless }).wait(),
  stderrOffset: () => client.commands.attach("infinity", { stderrOffset: endless }).wait(),
  rows: () => client.start(["true"], { terminal: { cols: 80, rows: 24 } }).resize(80, endless),
  port: () => client.ports.connect(endless).opened,
  listen: () => client.ports.forward({ port: agent.port, listen: endless }),
  hostTime: () => client.snapshots.duties({ entropy, hostTime: new Date(endless) }),
};

/** Numbers that are not options: of entries that a caller writes with writeTree, and of results. */
const NO_OPTIONS: ReadonlySet<string> = new Set(["vsockPort", "mtimeSeconds", ...specNumbers()]);

/** The numbers of a sandbox's specs: test/node/sandboxes/infinity.test.ts. */
function specNumbers(): string[] {
  return [
    "stopGraceMs",
    "stop_grace_ms",
    "intervalMs",
    "interval_ms",
    "timeoutMs",
    "timeout_ms",
    "bufferBytes",
    "buffer_bytes",
  ];
}

describe("Infinity as the value of an option", () => {
  it("the tests of Infinity cover every numeric option of the client", () => {
    const sources = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
    const names = sources.flatMap((name) =>
      [...readFileSync(join(SOURCES, name), "utf8").matchAll(/^ {2}readonly (\w+)\?: number\b/gm)].map(
        ([, option]) => option ?? "",
      ),
    );
    const tested = new Set([...Object.keys(ACCEPTED), ...Object.keys(REJECTED)].map((name) => name.split(".").at(-1)));
    assert.ok(names.length > 30, String(names));
    assert.deepEqual(
      names.filter((name) => !tested.has(name) && !NO_OPTIONS.has(name)),
      [],
    );
  });

  for (const [name, call] of Object.entries(ACCEPTED))
    it(`${name} accepts Infinity as "no limit"`, async () => {
      await call();
    });

  for (const [name, call] of Object.entries(REJECTED))
    it(`${name} rejects Infinity and names the option`, async () => {
      const error: GuestError = await failureOf(Promise.resolve().then(call));
      const [option = ""] = name.split(" ");
      assert.equal(error.code, "INVALID_ARGUMENT", error.message);
      assert.equal(error.option, option, error.message);
      assert.match(error.message, new RegExp(option.split(".").at(-1) ?? ""));
    });
});
