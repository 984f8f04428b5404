import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { connect as connectTls } from "node:tls";
import { join } from "node:path";
import { HookKind } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { GuestClient } from "../../src/node/client/index.ts";
import { startCuttingProxy } from "../machine/cutting-proxy.ts";
import { Terminal } from "../machine/terminal.ts";
import type { Report } from "./report.ts";
import { GUESTCTL, type Sandbox } from "./sandbox.ts";

/** Context of every step. */
export interface Tour {
  readonly report: Report;
  readonly sandbox: Sandbox;
  readonly client: GuestClient;
}

/** Health, once the workload has declared itself idle. */
export async function health({ report, client }: Tour): Promise<void> {
  report.step("Health: is the workload ready, and what is it doing?");
  report.asked("Health");
  let answer = await client.health({ waitForReady: true, timeoutMs: 30_000 });
  while (answer.idleDeclared === undefined) answer = await client.health();
  report.came(`alive ${answer.alive}, ready ${answer.ready}, ready_cmd_exit ${answer.readyCmdExit}`);
  report.came(`idle_declared ${answer.idleDeclared.toISOString()} (the workload's own DeclareIdle)`);
  report.expect("ready", answer.ready, true);
}

/** A command on pipes: input, both outputs, exit code. */
export async function execOnPipes({ report, client }: Tour): Promise<void> {
  report.step("Exec on pipes: input goes in, output and errors come back apart, the exit comes last");
  const script = "tr a-z A-Z; echo 'and this is an error' >&2; exit 3";
  report.asked(`sh -c "${script}"   with "hello sandbox" on standard input`);
  const result = await client.run({ args: ["sh", "-c", script] }, { input: "hello sandbox\n" });
  report.came(`stdout ${JSON.stringify(String(result.stdout))}`);
  report.came(`stderr ${JSON.stringify(String(result.stderr))}`);
  report.came(`exit code ${result.exitCode}, signal ${result.signal}, output complete ${result.outputComplete}`);
  report.expect("stdout", String(result.stdout), "HELLO SANDBOX\n");
  report.expect("code", result.exitCode, 3);

  report.asked("sleep 60   with a timeout of 200 ms");
  const late = await client.run({ args: ["sleep", "60"], timeoutMs: 200 });
  report.came(`timed out ${late.timedOut}, code ${late.exitCode}, signal ${late.signal}, after ${late.durationMs} ms`);
  report.expect("timed out", late.timedOut, true);

  report.asked("no-such-command");
  const failure = await client.run({ args: ["no-such-command"] }).catch((error: unknown) => error as Error);
  report.came("message" in failure ? `${failure.name}: ${failure.message}` : "it ran?");
  report.expect("reason", "reason" in failure ? failure.reason : undefined, "EXEC_NOT_FOUND");
}

/** A user at a terminal: guestctl passes on every key, and the size. */
export async function execInTerminal({ report, sandbox }: Tour): Promise<void> {
  report.step("Exec in a terminal: the size is there from the start, and follows");
  const script = "trap 'stty size; read line; exit' WINCH; tty; stty size; while :; do sleep 0.1; done";
  report.asked(`guestctl exec -it -- sh -c "${script}"   in a terminal of 100x30, resized to 120x40; then Enter`);
  const command = [GUESTCTL, "exec", "-it", "--", "sh", "-c", script] as const;
  const env = {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    GUESTCTL_ADDRESS: sandbox.address,
    GUESTCTL_CREDENTIALS: sandbox.folder,
  };
  await using terminal = new Terminal({ command, cols: 100, rows: 30, env });
  await terminal.expect(/^30 100$/m);
  terminal.resize(120, 40);
  await terminal.expect(/^40 120$/m);
  report.came(terminal.screen());
  terminal.key("Enter");
  const code = await terminal.ended();
  report.came(`exit code ${code}`);
  report.expect("sizes", terminal.screen().match(/^\d+ \d+$/gm), ["30 100", "40 120"]);
}

/** A command that outlives the connection, which is cut right through its output. */
export async function keptCommand({ report, sandbox, client }: Tour): Promise<void> {
  report.step("A command that outlives its connection: cut it, attach, and nothing is lost");
  const last = 200_000;
  report.asked(`seq 1 ${last}   kept as "numbers", whose connection is cut after the first output`);
  await using way = await startCuttingProxy(Number(sandbox.address.split(":").at(-1)));
  const doomed = await sandbox.dial({ address: `127.0.0.1:${way.port}` });
  const keep = { name: "numbers", bufferBytes: 64 * 1024, whenFull: "block" } as const;
  const numbers = doomed.exec({ args: ["seq", "1", String(last)], keep });
  const received: Buffer[] = [];
  for await (const bytes of numbers.stdout.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    received.push(bytes);
    break;
  }
  way.cut();
  const failure = await numbers.wait().catch((error: unknown) => error as Error);
  doomed.close();
  report.came(
    `${Buffer.concat(received).length} bytes, then ${"message" in failure ? failure.message : "no failure?"}`,
  );
  const [kept] = await client.listExecs();
  report.came(`ListExecs: ${kept?.name}, ${kept?.exit === undefined ? "running" : "ended"}`);

  const { stdoutOffset } = numbers.position;
  report.asked(`attach "numbers" from offset ${stdoutOffset}`);
  const again = client.attach("numbers", { stdoutOffset, stderrOffset: 0 });
  for await (const bytes of again.stdout as AsyncIterable<Buffer>) received.push(bytes);
  const { exitCode: code } = await again.wait();
  const lines = Buffer.concat(received).toString().trimEnd().split("\n");
  report.came(`all ${lines.length} lines, the last ${lines.at(-1)}; exit code ${code}`);
  report.expect("lines", lines.every((line, index) => line === String(index + 1)) && lines.length, last);
}

/** The three layers of a command's environment. */
export async function environmentLayers({ report, client, sandbox }: Tour): Promise<void> {
  report.step("The environment in three layers: inherited - bootstrap, Process.env, ExecStart.env");
  report.asked("env | grep -E '^(TOUR|SVC)_'   with ExecStart.env TOUR_REQUEST=request and TOUR_SHARED=request");
  const result = await client.run({
    args: ["sh", "-c", "env | grep -E '^(TOUR|SVC)_' | sort"],
    env: { TOUR_REQUEST: "from-request", TOUR_SHARED: "from-request" },
  });
  const lines = String(result.stdout).trim().split("\n");
  report.came(lines.join("\n"));
  report.came(`none of the agent's own: ${Object.keys(sandbox.variables).toSorted().join(", ")}`);
  report.expect("environment", lines, [
    "TOUR_INHERITED=from-image",
    "TOUR_PROCESS=from-process-spec",
    "TOUR_REQUEST=from-request",
    "TOUR_SHARED=from-request",
  ]);
}

/** Writes a file and reads it back. */
export async function files({ report, client, sandbox }: Tour): Promise<void> {
  report.step("Files: written in one piece or not at all, with owner and mode, and read back");
  const path = join(sandbox.folder, "inside", "greeting.txt");
  const content = Buffer.from("carried into the sandbox\n");
  report.asked(`WriteFile ${path}   mode 0640, with its parent directories`);
  const written = await client.writeFile(path, content, { mode: 0o640, parents: true });
  report.came(`${written.bytesWritten} bytes, sha256 ${Buffer.from(written.sha256).toString("hex").slice(0, 16)}…`);
  report.asked(`ReadFile and StatPath ${path}`);
  const chunks: Uint8Array[] = [];
  for await (const chunk of client.readFile(path)) chunks.push(chunk);
  const { mode, size } = await client.statPath(path);
  report.came(`${JSON.stringify(String(Buffer.concat(chunks)))}, mode 0${mode.toString(8)}, ${size} bytes`);
  report.expect("content", Buffer.concat(chunks), content);
  report.expect("mode", mode, 0o640);
}

/** A host's calls around a snapshot: the hooks, and between them the restore duties. */
export async function snapshotAndRestore({ report, client }: Tour): Promise<void> {
  report.step("Around a snapshot: the hook before it; after the restore the duties, and then the other hook");
  report.asked("RunHook PRE_SNAPSHOT");
  const before = await client.runHook({ kind: HookKind.PRE_SNAPSHOT });
  report.came(`ran ${before.ran}, timed out ${before.timedOut}, exit code ${before.exitCode}`);
  report.came(`stdout_tail ${JSON.stringify(before.stdoutTail)}`);
  report.expect("hook", before.stdoutTail, "at rest\n");

  // No host_time: the tour's guest is this machine, whose clock must not change.
  report.asked("RunRestoreDuties   with 64 bytes of fresh entropy, and no host_time");
  const duties = await client.runRestoreDuties({ entropy: randomBytes(64) });
  report.came(`entropy_bytes_mixed ${duties.entropyBytesMixed}, entropy_credited ${duties.entropyCredited}`);
  report.came(`clock_stepped ${duties.clockStepped}, degraded ${JSON.stringify(duties.degraded)}`);
  report.expect("stepped", duties.clockStepped, false);

  report.asked("RunHook POST_RESTORE   (none is configured)");
  const after = await client.runHook({ kind: HookKind.POST_RESTORE });
  report.came(`ran ${after.ran}`);
  report.expect("ran", after.ran, false);
}

/** A client without a certificate, and one with a wrong token. */
export async function refusals({ report, sandbox }: Tour): Promise<void> {
  report.step("Who is refused");
  report.asked("TLS without a client certificate");
  const reason = await dialWithoutCertificate(sandbox);
  report.came(reason);
  report.expect("refused", reason.includes("CERTIFICATE_REQUIRED"), true);

  report.asked("Health with a right certificate and a wrong token");
  const stranger = await sandbox.dial({ token: "not-the-token" });
  const failure = await stranger.health().catch((error: unknown) => error as Error);
  stranger.close();
  report.came("message" in failure ? `${failure.name}: ${failure.message}` : "it answered?");
  report.expect("status", "status" in failure ? failure.status : undefined, "UNAUTHENTICATED");
  const refused = sandbox.log.find((line) => line.includes("refused"));
  if (refused !== undefined) report.came(`the agent's log: ${refused}`);
}

/** Returns the alert that ends the handshake. */
async function dialWithoutCertificate(sandbox: Sandbox): Promise<string> {
  const ca = await readFile(join(sandbox.folder, "ca.pem"));
  const { hostname: host, port } = new URL(`https://${sandbox.address}`);
  const socket = connectTls({ host, port: Number(port), ca, servername: "guest-agent", ALPNProtocols: ["h2"] });
  return new Promise((resolve) => {
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.on("close", () => resolve("closed without a word"));
    socket.resume();
  });
}

/** SIGTERM reaches the workload, and its exit code becomes the agent's. */
export async function shutDown({ report, sandbox, client }: Tour): Promise<void> {
  report.step("The end: the signal goes to the workload, its status comes back as the agent's");
  client.close();
  report.asked("SIGTERM to the agent (the workload answers it with exit code 42)");
  sandbox.kill("SIGTERM");
  const { exitCode, signal } = await sandbox.ended;
  report.came(`the agent left with code ${exitCode ?? "-"}${signal === undefined ? "" : `, signal ${signal}`}`);
  report.expect("status", exitCode, 42);
}
