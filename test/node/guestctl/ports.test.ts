// The runner gives this file a network of its own: a machine may have more ports that listen than are listed.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { execa } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { agentForAllTests, assertRefused, GUESTCTL, jsonLines, runGuestctl, startGuestctl } from "./guestctl.ts";
import { until } from "../../fixtures/awake.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

const directory = forAllTests(await testDirectory());
const { agent, env } = await agentForAllTests();

/** Sends bytes and an end. Resolves with what comes back. */
async function answer(at: number | string, sent: Buffer): Promise<Buffer> {
  const place = typeof at === "number" ? { port: at, host: "127.0.0.1" } : { path: at };
  const socket = connect({ ...place, allowHalfOpen: true });
  socket.end(sent);
  return buffer(socket);
}

describe("guestctl forward", () => {
  test("`forward` connects local ports to the sandbox's ports and unix sockets until SIGTERM", async () => {
    await using server = await listener(echo);
    const path = directory.at("server.sock");
    await using _unix = await listener((socket) => void socket.end("from the socket"), { path });
    const running = startGuestctl(["forward", `0:${server.port}`, `127.0.0.1:0:${path}`], env);
    const told = [(await running.lines.next()).value, (await running.lines.next()).value].map(String);
    const lines = told.toSorted((one, other) =>
      one.split(" -> ")[1]?.startsWith("/") === true ? 1 : other.includes("/") ? -1 : 0,
    );
    const ports = lines.map((line) => Number(/^127\.0\.0\.1:(\d+) -> /.exec(line)?.[1]));
    const targets = lines.map((line) => line.split(" -> ")[1]);
    assert.deepEqual(targets, [String(server.port), path]);
    const sent = randomBytes(3 * 2 ** 20);
    const answers = await Promise.all(Array.from({ length: 4 }, () => answer(ports[0] ?? 0, sent)));
    for (const got of answers) assert.ok(got.equals(sent));
    assert.equal(String(await answer(ports[1] ?? 0, Buffer.from("x"))), "from the socket");
    running.kill("SIGTERM");
    assert.equal(await running.ended, 0);
  });

  test("`forward` replaces a stale local unix socket, and removes its own at SIGTERM", async () => {
    await using server = await listener(echo);
    const path = directory.at("local.sock");
    const sent = Buffer.from("over a unix socket");
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      const running = startGuestctl(["forward", `${path}:${server.port}`], env);
      assert.equal((await running.lines.next()).value, `${path} -> ${server.port}`);
      assert.ok((await answer(path, sent)).equals(sent));
      const second = await runGuestctl(["forward", `${path}:${server.port}`], env);
      assertRefused(second, /cannot listen on .*local\.sock: .*EADDRINUSE/);
      running.kill(signal);
      await running.ended;
    }
    await assert.rejects(stat(path), { code: "ENOENT" });
  });

  test("`forward` on a local unix socket continues after a connection has failed", async () => {
    const port = await freePort();
    const path = directory.at("failing.sock");
    const running = startGuestctl(["forward", `${path}:${port}`], env);
    assert.equal((await running.lines.next()).value, `${path} -> ${port}`);
    assert.equal(String(await answer(path, Buffer.from("nobody listens")).catch(() => "")), "");
    await using _server = await listener(echo, { port, host: "127.0.0.1" });
    assert.equal(String(await answer(path, Buffer.from("x"))), "x");
    running.kill("SIGTERM");
    assert.equal(await running.ended, 0);
  });

  test("`forward` does not replace files, directories or symlinks with its socket", async () => {
    await using server = await listener(echo);
    const file = directory.at("precious");
    await writeFile(file, "precious");
    await mkdir(directory.at("directory"));
    await symlink(file, directory.at("link"));
    for (const name of ["precious", "directory", "link"]) {
      const refused = await runGuestctl(["forward", `${directory.at(name)}:${server.port}`], env);
      assertRefused(refused, new RegExp(`^guestctl: cannot listen on \\S+/${name}: .*EADDRINUSE`));
    }
    assert.equal(await readFile(file, "utf8"), "precious");
    assert.ok((await stat(directory.at("directory"))).isDirectory());
  });

  test("`forward --wait` starts to listen when a program in the sandbox listens", async () => {
    const port = await freePort();
    const running = startGuestctl(["forward", "--wait", "--json", `0:${port}`], env);
    await using _server = await listener(echo, { port, host: "127.0.0.1" });
    const told = JSON.parse(String((await running.lines.next()).value)) as { port: number; target: number };
    assert.equal(told.target, port);
    assert.equal(String(await answer(told.port, Buffer.from("x"))), "x");
    running.kill("SIGINT");
    assert.equal(await running.ended, 0);
    const late = await runGuestctl(["forward", "--wait", "--timeout", "100ms", `0:${await freePort()}`], env);
    assertRefused(late, /^guestctl: nothing listened on port \d+ .*\[DEADLINE_EXCEEDED, PORT_NOT_LISTENING\]/);
  });

  test("`forward` reports and resets a failed connection, then continues", async () => {
    const port = await freePort();
    const [file, ...args] = GUESTCTL;
    const running = execa(file, [...args, "forward", `0:${port}`], { env, extendEnv: false, reject: false });
    const [line] = (await once(running.stdout, "data")) as [Buffer];
    const local = Number(/:(\d+) ->/.exec(String(line))?.[1]);
    const socket: Socket = connect(local, "127.0.0.1");
    const [error] = (await once(socket.resume(), "error")) as [NodeJS.ErrnoException];
    assert.equal(error.code, "ECONNRESET");
    await using _server = await listener(echo, { port, host: "127.0.0.1" });
    assert.equal(String(await answer(local, Buffer.from("x"))), "x");
    running.kill("SIGTERM");
    assert.match(
      (await running).stderr,
      new RegExp(`^guestctl: a connection to ${port} failed: .*nothing listens there`, "m"),
    );
  });

  test("`forward` rereads credentials after the agent rejects them", async () => {
    await using server = await listener(echo);
    const credentials = directory.at("renewed");
    await mkdir(credentials);
    for (const name of ["ca.pem", "client.pem", "client.key"])
      await copyFile(join(agent.credentialsDir, name), join(credentials, name));
    await writeFile(join(credentials, "token"), "of-the-instance-before-it");
    const running = startGuestctl(["forward", `0:${server.port}`], { ...env, GUESTCTL_CREDENTIALS: credentials });
    const local = Number(/:(\d+) ->/.exec(String((await running.lines.next()).value))?.[1]);
    await assert.rejects(answer(local, Buffer.from("before")), { code: "ECONNRESET" });
    await writeFile(join(credentials, "token"), agent.token);
    assert.equal(String(await answer(local, Buffer.from("after"))), "after");
    running.kill("SIGTERM");
    assert.equal(await running.ended, 0);
  });

  test("`forward` fails if the local port is in use", async () => {
    await using taken = await listener();
    const { exitCode, stderr } = await runGuestctl(["forward", `${taken.port}:80`], env);
    assert.equal(exitCode, 125);
    assert.match(stderr, /cannot listen on 127\.0\.0\.1, port \d+: .*EADDRINUSE/);
  });
});

describe("guestctl connect", () => {
  test("`connect` joins standard input and output to a sandbox's port", async () => {
    await using server = await listener(echo);
    const [file, ...args] = GUESTCTL;
    const sent = randomBytes(2 ** 20);
    const { stdout, exitCode } = await execa(file, [...args, "connect", String(server.port)], {
      env,
      extendEnv: false,
      input: sent,
      encoding: "buffer",
      stripFinalNewline: false,
    });
    assert.equal(exitCode, 0);
    assert.ok(Buffer.from(stdout).equals(sent));
    await using last = await listener((socket) => void socket.end("its end first"));
    const running = execa(file, [...args, "connect", String(last.port)], { env, extendEnv: false });
    const [first] = (await once(running.stdout, "data")) as [Buffer];
    assert.equal(String(first), "its end first");
    running.stdin.end("and then this");
    assert.equal(await text(await last.next()), "and then this");
    assert.equal((await running).exitCode, 0);
  });

  test("`connect` reports a refused and a reset connection", async () => {
    const refused = await runGuestctl(["connect", String(await freePort())], env);
    assert.deepEqual([refused.stdout, refused.exitCode], ["", 125]);
    assert.match(refused.stderr, /nothing listens there.*\[FAILED_PRECONDITION, PORT_REFUSED\]/);
    await using server = await listener((socket) => socket.once("data", () => socket.resetAndDestroy()));
    assertRefused(await runGuestctl(["connect", String(server.port)], env, "x"), /\[ABORTED, PORT_RESET\]/);
  });
});

/** A process that listens at an address, under a name that would act on a terminal. */
async function hostileServer(host: string): Promise<{ readonly port: number; readonly server: ChildProcess }> {
  const code = `process.title = "\\x1b[31mx\\r\\ny";
    const server = net.createServer().listen(0, "${host}", () => console.log(server.address().port));`;
  const server = spawn(process.execPath, ["-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(server.stdout, "data")) as [Buffer];
  return { port: Number(line.toString()), server };
}

describe("guestctl ports", () => {
  test("`ports` lists listeners, their reachability, and escaped names of processes", async () => {
    const { port, server } = await hostileServer("127.0.0.1");
    try {
      const { stdout, exitCode } = await runGuestctl(["ports"], env);
      assert.equal(exitCode, 0);
      assert.match(stdout, /^ADDRESS +PORT +REACHED FROM +UID +PID +COMMAND\n/);
      const line = stdout.split("\n").find((one) => one.includes(`${port} `)) ?? assert.fail(stdout);
      assert.match(line, new RegExp(`^127\\.0\\.0\\.1 +${port} +the sandbox +\\d+ +${server.pid} +\\?\\[31mx\\?\\?y$`));
      const [object] = jsonLines((await runGuestctl(["ports", "--json"], env)).stdout);
      const listed = (object?.["ports"] as { port: number; command: string; scope: string }[] | undefined)?.find(
        (one) => one.port === port,
      );
      assert.deepEqual([listed?.command, listed?.scope], ["\u001b[31mx\r\ny", "loopback"]);
    } finally {
      server.kill();
    }
  });

  test("`ports --watch` continues across restore steps until a signal", async () => {
    const watch = startGuestctl(["ports", "--watch"], env);
    let seen = "";
    watch.stdout.on("data", (bytes: Buffer) => (seen += bytes.toString()));
    await until(() => seen.includes("all that listen:\n"), "the list");
    const { port, server } = await hostileServer("0.0.0.0");
    await until(() => seen.includes(`\n+ 0.0.0.0  ${port}  everywhere  `), "what opened");
    server.kill();
    await until(() => seen.includes(`\n- 0.0.0.0  ${port}  everywhere  `), "what closed");
    using client = clientOf(agent);
    await client.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    await until(() => seen.split("all that listen:\n").length === 3, "the list after the duties");
    watch.kill("SIGINT");
    assert.equal(await watch.ended, 0);
  });
});
