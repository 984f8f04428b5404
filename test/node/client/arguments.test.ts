import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { connect, restoreDuties } from "../../../src/node/client/index.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { failureOf, thrownBy } from "../../fixtures/guest-client.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";

/** What a program without types may pass. */
const anything = (value: unknown): never => value as never;

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startSocketAgent({ hooks: { pre_snapshot: { args: ["true"] } } }));
const client = forAllTests(connect({ address: `unix:${agent.socketPath}`, token: agent.token }));

describe("arguments", () => {
  test("`connect` trims the token's line break and rejects invalid tokens without showing them", async () => {
    using withBreak = connect({ address: `unix:${agent.socketPath}`, token: `${agent.token}\n` });
    assert.equal((await withBreak.health()).alive, true);
    const texts = ["secret with spaces", "secret\nlines", "sécret", "secret\u0000", "s".repeat(5000)];
    for (const token of ["", " \n", ...texts, undefined]) {
      const error = thrownBy(() => connect({ address: `unix:${agent.socketPath}`, token: anything(token) }));
      assert.equal(error.status, "INVALID_ARGUMENT");
      assert.doesNotMatch(`${error.stack}${JSON.stringify(error)}`, /s.?cret|ssss/);
      assert.match(error.message, /^token /);
    }
  });

  test("`connect` rejects invalid options with a GuestError", () => {
    for (const options of [
      undefined,
      {},
      { token: "t" },
      { token: "t", address: 5 },
      { token: "t", address: "x:1", caPem: undefined, certPem: "", keyPem: 7 },
      { token: "t", bridge: "docker" },
      { token: "t", bridge: 5 },
    ]) {
      assert.equal(thrownBy(() => connect(anything(options))).status, "INVALID_ARGUMENT", JSON.stringify(options));
    }
  });

  test("the client rejects invalid arguments before it sends a call, and names the field", async () => {
    const token = "t";
    const none = "-----BEGIN CERTIFICATE-----";
    const pem = { caPem: none, certPem: none, keyPem: none };
    const kept = (keep: object, options: object = {}): unknown =>
      client.start(["true"], { keep: { name: "wrong", ...keep }, ...options });
    const calls: readonly (readonly [RegExp, () => unknown])[] = [
      [/timeoutMs requires/, () => client.run(["true"], { timeoutMs: NaN })],
      [/timeoutMs requires/, () => client.run(["true"], { timeoutMs: -1 })],
      [/timeoutMs requires/, () => client.run(["true"], { timeoutMs: anything("5s") })],
      [/requestTimeoutMs requires/, () => client.run(["true"], { requestTimeoutMs: NaN })],
      [/requestTimeoutMs requires/, () => client.health({ requestTimeoutMs: NaN })],
      [/requestTimeoutMs requires/, () => client.files.upload("/tmp", "/x", { requestTimeoutMs: NaN })],
      [/maxOutputBytes requires/, () => client.run(["true"], { maxOutputBytes: 0.5 })],
      [/cols/, () => client.run(["true"], { terminal: { cols: 80.5, rows: 24 } })],
      [/^a command is an array of strings, /, () => client.run(anything({}))],
      [/^a command is an array of strings, /, () => client.run(anything(undefined))],
      [/^a command is an array, .* \["sh", "-c", line\]$/, () => client.run(anything("ls -l"))],
      [/^a command is an array, and its options follow it: /, () => client.run(anything({ args: ["ls"] }))],
      [/^a command is an array of strings, /, () => client.run(anything(["ls", 5]))],
      [/^the command is empty/, () => client.run([])],
      [/no timeout in the options of start\(\)/, () => client.start(["ls"], anything({ timeout: 5 }))],
      [/no replace in keep/, () => client.start(["ls"], anything({ keep: { name: "a", replace: true } }))],
      [/^the options of start\(\) must be an object/, () => client.start(["ls"], anything(null))],
      [/^there is no deadline in the options of run\(\); /, () => client.run(["ls"], anything({ deadline: 5 }))],
      [/^there is no deadlineMs in the options of health\(\); /, () => client.health(anything({ deadlineMs: 5 }))],
      [/^the options of health\(\) must be an object/, () => client.health(anything(5))],
      [
        /no createParent in the options of writeFile\(\)/,
        () => client.files.writeFile("/x", "x", anything({ createParent: 1 })),
      ],
      [/no length_ in the options of readFile\(\)/, () => client.files.readFile("/x", anything({ length_: 5n }))],
      [/^address is missing; /, () => connect(anything({ token: "t" }))],
      [/^there is no adress in the options of connect\(\); /, () => connect(anything({ adress: "x:1", token: "t" }))],
      [
        /^there is no timeout in the options of hook\(\); /,
        () => client.snapshots.hook("post-restore", anything({ timeout: 5 })),
      ],
      [/is not a hook; give "pre-snapshot" or "post-restore"$/, () => client.snapshots.hook(anything(1))],
      [
        /^there is no time in the options of duties\(\); /,
        () => client.snapshots.duties(anything({ entropy: "x", time: 5 })),
      ],
      [/timeoutMs requires/, () => client.snapshots.prepare({ timeoutMs: -1 })],
      [/offset/, () => client.files.readFile("/etc/hosts", { offset: -1 })],
      [/size/, () => client.files.writeFile(directory.at("x"), "x", { size: -1 })],
      [/mode/, () => client.files.writeFile(directory.at("x"), "x", { mode: 0.5 })],
      [/write host:port/, () => connect({ address: "http://localhost:1", token, ...pem })],
      [/IPv6 address in brackets/, () => connect({ address: "::1:7071", token, ...pem })],
      [/keyPem is not PEM/, () => connect({ address: "127.0.0.1:1", token, ...pem, keyPem: "" })],
      [/is not valid PEM/, () => connect({ address: "127.0.0.1:1", token, ...pem })],
      [/^serverName requires a name/, () => connect({ address: "127.0.0.1:1", token, ...pem, serverName: "a\nb" })],
      [
        /^serverName requires a name/,
        () => connect({ address: "127.0.0.1:1", token, ...pem, serverName: anything(5) }),
      ],
      [/^address contains a NUL/, () => connect({ address: "unix:/a\0b", token })],
      [/^bridge\[1\] contains a NUL/, () => connect({ bridge: ["nc", "a\0"], token })],
      [/^bridge\[0\] is not text/, () => connect({ bridge: anything([5]), token })],
      [
        /^the value of KEY in env contains a NUL character$/,
        () => connect({ bridge: ["nc"], env: { KEY: "x\0" }, token }),
      ],
      [/^the value of KEY in env is not text$/, () => connect({ bridge: ["nc"], env: anything({ KEY: 5 }), token })],
      [/also give caPem, certPem and keyPem/, () => connect({ address: "127.0.0.1:1", token })],
      [/must be a list with the command/, () => connect({ bridge: [], token })],
      ...["unix://host/path", "unix:path", "unix:", "unix:/", "unix://"].map(
        (address) => [new RegExp(`"${address}" is not unix:/path`), () => connect({ address, token })] as const,
      ),
      [/keep\.bufferBytes requires a whole number/, () => kept({ bufferBytes: -1 })],
      [/keep\.lingerMs requires a number of milliseconds/, () => kept({ lingerMs: Number.NaN })],
      [/keep\.whenFull is "wait"; give drop-oldest or block/, () => kept({ whenFull: "wait" })],
      [/resume\.timeoutMs requires a number/, () => kept({}, { resume: { timeoutMs: -1 } })],
      [/mode requires a whole number/, () => client.files.mkdir("/x", { mode: -1 })],
      [/uid requires a whole number/, () => client.files.setAttributes("/x", { uid: 1.5 })],
      [/mtime is not a valid time/, () => client.files.setAttributes("/x", { mtime: new Date(Number.NaN) })],
      [/set at least one of mode, uid, gid and mtime/, () => client.files.setAttributes("/x", {})],
      [/there is no recursiv/, () => client.files.rm("/x", anything({ recursiv: true }))],
      [/must end in a name/, () => client.files.rm("/", { recursive: true })],
      [/there is no dept/, () => Array.fromAsync(client.files.opendir("/", anything({ dept: 3 })))],
      [/maxEntries/, () => Array.fromAsync(client.files.opendir("/", { maxEntries: -1 }))],
      [/(?:)/, () => client.ports.forward({})],
      [/(?:)/, () => client.ports.forward({ port: 80, path: "/run/app.sock" })],
      [/^a command is an array, /, () => client.start(anything("ls -l"))],
      [/"SIG65" is not a signal/, () => client.commands.signal("x", "SIG65")],
      [/entropyBytes requires/, () => restoreDuties(() => client, { entropyBytes: NaN })],
      [/reachTimeoutMs requires/, () => client.snapshots.completeRestore({ reachTimeoutMs: NaN })],
    ];
    for (const [problem, call] of calls) {
      const error = await failureOf(Promise.resolve().then(call));
      assert.equal(error.status, "INVALID_ARGUMENT", String(problem));
      assert.match(error.message, problem);
      const [, field] =
        /^(?:there is no )?(args|address|adress|timeout|deadline|createParent) /.exec(error.message) ?? [];
      if (field !== undefined) assert.equal(error.metadata["field"], field);
    }
  });

  test("run() accepts timeouts with fractional milliseconds", async () => {
    const timeoutMs = 100_000 / 3;
    assert.equal((await client.run(["true"], { timeoutMs, requestTimeoutMs: timeoutMs })).exitCode, 0);
  });

  test("calls with invalid arguments cause no unhandled rejection", async () => {
    const library = join(import.meta.dirname, "../../../src/node/client/index.ts");
    const program = `
      import { connect } from ${JSON.stringify(library)};
      const client = connect({ address: "unix:${agent.socketPath}", token: process.env.TOKEN });
      await client.health();
      for (const timeoutMs of [NaN, -1, "x"]) {
        await client.run(["true"], { timeoutMs }).catch((error) => console.log(error.name, error.status));
      }
      const command = client.start(["sleep", "1"]);
      for (const wrong of [() => command.kill("SIGNOPE"), () => command.kill(1.5), () => command.resize(NaN, 1)]) {
        try { wrong(); } catch (error) { console.log(error.name, error.status); }
      }
      console.log((await command.wait()).exitCode);
      client.close();`;
    const env = { ...process.env, TOKEN: agent.token };
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { env });
    assert.equal(stdout, `${"GuestError INVALID_ARGUMENT\n".repeat(6)}0\n`);
  });

  test("signal() accepts a signal name and rejects an unknown one", async () => {
    const command = client.start(["sleep", "1000"]);
    await command.started;
    command.kill("SIGUSR1");
    assert.equal((await command.wait()).signal, "SIGUSR1");
    assert.match(thrownBy(() => command.kill(anything("TERM"))).message, /"TERM" is not a signal/);
  });

  test("run() cancels a command that exceeds `maxOutputBytes`", async () => {
    const yes = client.run(["yes"], { maxOutputBytes: 1_000_000 });
    const error = await failureOf(yes);
    assert.equal(error.status, "RESOURCE_EXHAUSTED");
    assert.match(error.message, /more than 1000000 bytes to stdout.*maxOutputBytes/);
    const fits = await client.run(["head", "-c", "5", "/dev/zero"], { maxOutputBytes: 5 });
    assert.equal(fits.stdout.length, 5);
  });

  test("a command's input and a file's content may be text instead of bytes", async () => {
    assert.equal((await client.run(["cat"], { input: "größer" })).stdout, "größer");
    const path = directory.at("text");
    await client.files.writeFile(path, "größer\n");
    assert.equal(await client.files.readFile(path, "utf8"), "größer\n");
    assert.deepEqual(await client.files.readFile(path, { offset: 2, length: 2 }), Buffer.from("ö"));
    await client.files.writeFile(path, Readable.from(["two ", "parts"]));
    assert.equal(await client.files.readFile(path, "utf8"), "two parts");
    for (const source of [5, null, Readable.from([5])]) {
      const error = await failureOf(client.files.writeFile(path, anything(source)));
      assert.deepEqual([error.status, error.cause instanceof TypeError], ["FAILED_PRECONDITION", true]);
    }
    assert.equal(await client.files.readFile(path, "utf8"), "two parts");
  });
});
