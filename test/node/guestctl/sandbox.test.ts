import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { describe, test } from "node:test";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { AGENT_VERSION } from "../../../src/shared/version.ts";
import { DECLARE_IDLE_LINE } from "../../fixtures/declare-idle.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { guestctlVariablesOf } from "../sandboxes/node.ts";
import { NO_SHELL } from "../sandboxes/process-machines.ts";
import { HttpSubstrate, IMAGE, MISSING } from "../sandboxes/substrate.ts";
import { assertRefused, type GuestctlResult, runGuestctl, startGuestctl } from "./guestctl.ts";

type Json = Readonly<Record<string, unknown>>;

const substrate = forAllTests(await HttpSubstrate.start());
const directory = join(substrate.stateDirectory, "../cli");
await mkdir(directory, { mode: 0o700 });
const idle = join(directory, "process.json");
await writeFile(idle, JSON.stringify({ args: ["sh", "-c", `${DECLARE_IDLE_LINE}; exec sleep 100000`] }));
const { GUESTCTL_STATE: _, ...variables } = guestctlVariablesOf(substrate);
const env: Record<string, string> = { ...variables, HOME: directory, GUESTCTL_NODE_ID: "node-7" };

describe("guestctl sandbox", NEEDS_NAMESPACES, () => {
  const ofCreate = ["--agent-port", String(substrate.agentPort)];
  const sandbox = (...[verb, ...words]: readonly string[]): Promise<GuestctlResult> =>
    runGuestctl(
      ["sandbox", ...(verb === undefined ? [] : [verb]), ...(verb === "create" ? ofCreate : []), ...words],
      env,
    );
  const json = async (...args: readonly string[]): Promise<Json> =>
    JSON.parse((await sandbox(...args, "--json")).stdout) as Json;

  test("`sandbox create` prints its steps; `ls` and `status` print the sandbox's address", async () => {
    const words = ["--name", "box", "--tag", "a=b=c", IMAGE, "--", "sleep", "100000"];
    const made = await runGuestctl(["sandbox", "create", "--agent-port", String(substrate.agentPort), ...words], env);
    assertRefused(made, /^guestctl: create box: check the image and the daemon\n/, 0);
    assert.match(made.stderr, /\nguestctl: create box: wait for the agent\n/);
    const [, command = ""] = /^box runs\n {2}guestctl (.*) -- true\n$/.exec(made.stdout) ?? [];
    const run = await runGuestctl([...command.split(" "), "--", "echo", "hello"], env);
    assert.deepEqual([run.stdout, run.exitCode], ["hello\n", 0]);
    const listed = await sandbox("ls");
    assert.match(
      listed.stdout,
      /^NAME +STATE +AGENT +IMAGE +ADDRESS +PUBLISHED +CREDENTIALS\nbox +Running +\d+\.\d+\.\d+ +debian:12 +127\.[\d.]+:\d+ +- +\/.*\/box\n$/,
    );
    assert.equal(listed.stderr, "");
    assert.match(
      (await sandbox("status", "box")).stdout,
      /^name: +box\nstate: +Running\nagent: +\d.*\nimage: +debian:12\naddress: +127\..*\npublished: +-\ncredentials: +\/.*\n$/,
    );
    const [first = {}] = (await json("ls"))["sandboxes"] as Json[];
    assert.deepEqual([first["name"], first["phase"], (first["tags"] as Json)["a"]], ["box", "ready", "b=c"]);
    assert.equal((first["tags"] as Json)["svc.node_id"], "node-7");
  });

  test("`standby`, `resume`, `snapshot` and `fork` exit with 1 after degraded restore steps", async () => {
    const asleep = await sandbox("standby", "box", "--freeze", "off");
    const words = "box is on standby; PRE_SNAPSHOT: not configured; session not frozen\n";
    assert.deepEqual([asleep.exitCode, asleep.stdout], [0, words]);
    assert.match((await sandbox("status", "box")).stdout, /\nstate: +Standby\n(?:.*\n)*suspension: +PRE_SNAPSHOT: not/);
    const resumed = await sandbox("resume", "box");
    assert.equal(resumed.exitCode, 1);
    assert.equal(
      // The clock cannot be measured well on a busy machine.
      resumed.stdout.replace(/^box: the guest's clock .*\n/m, ""),
      `box: not all restore steps could be done: clock_set:EPERM [DUTIES_DEGRADED]\nbox runs; POST_RESTORE: not configured; workload ready; agent ${AGENT_VERSION}\n`,
    );
    assert.doesNotMatch((await sandbox("status", "box")).stdout, /suspension/);
    const { snapshot, source } = await json("snapshot", "box", "--name", "taken");
    assert.equal((snapshot as Json)["source"], "box");
    // Without a writable cgroup2 hierarchy nothing can be frozen.
    const { outcome, problem } = (snapshot as Json)["freeze"] as Json;
    assert.equal(outcome === "failed" ? problem : outcome, outcome === "failed" ? "no_cgroups" : "frozen");
    assert.equal((source as Json)["ready"], true);
    const forked = await json("fork", "taken", "--name", "twin");
    assert.equal((forked["sandbox"] as Json)["name"], "twin");
    assert.equal(forked["source"], null);
    assert.match((await sandbox("ls")).stdout, /\ntaken +snapshot of box, [\d.]+ (?:Ki|Mi)?B +\d[\d.]+\n/);
    assert.equal(typeof (snapshot as Json)["size_bytes"], "number");
  });

  test("`sandbox node` shows the host's resources; `sandbox images` explains a failed image", async () => {
    const { stdout, exitCode } = await sandbox("node");
    assert.equal(exitCode, 0);
    assert.match(
      stdout,
      /^daemon: +answers; version 1a2b3c4, API 0\.3\.0\nqemu \(default\): +fork, snapshots, standby\n/,
    );
    // Two sandboxes run, with two processors and 1 GiB each.
    assert.match(stdout, /\nprocessors: +\d+, 4 in use\nmemory: +8\.0 GiB, 2\.0 GiB in use\ndisk: +not known\n/);
    assert.match(stdout, /\negress_control: +false: .*\nlive_checkpoint: +false: /);
    const { resources, ...status } = await json("node");
    assert.deepEqual(resources, {
      vcpus: { most: cpus().length, used: 4 },
      memory_bytes: { most: 8 * 2 ** 30, used: 2 * 2 ** 30 },
      disk_bytes: { most: null, used: 0 },
    });
    assert.deepEqual([status["health"], status["egress_control"], status["live_checkpoint"]], ["ok", false, false]);
    substrate.fail("GET /capabilities", MISSING);
    assert.match(
      (await sandbox("node")).stdout,
      /\nhypervisors: +not known: the daemon's API has no endpoint \/capabilities\n/,
    );
    substrate.interfere = () => undefined;
    substrate.addImage("broken:1", { digest: "", status: "failed" });
    const { stdout: listed } = await sandbox("images");
    assert.match(listed, /^NAME +STATUS +APPARENT +ALLOCATED +DIGEST\n\S+debian:12 +ready +- +- +sha256:1+\n/);
    assert.match(
      listed,
      /\n\S+broken:1 is failed: its conversion has failed, and the API does not report the reason; read the reason in/,
    );
    const images = (await json("images"))["images"] as Json[];
    assert.deepEqual([images[1]?.["status"], images[1]?.["apparent_bytes"]], ["failed", null]);
    substrate.images.remove(substrate.images.get("broken:1"));
  });

  test("`guestctl sandbox` reports failures with their code, as text and JSON", async () => {
    assertRefused(await sandbox("resume", "box"), /^guestctl: box is Running; .* \[WRONG_STATE\]\n$/);
    const none = await sandbox("standby", "none", "--json");
    const { error } = JSON.parse(none.stderr) as { error: Json };
    assert.equal(error["code"], "NOT_FOUND");
    assert.match(String(error["message"]), /^there is no sandbox "none" in the journal of \/.*\/sandboxes$/);
    assert.match(String(error["next_step"]), /^guestctl sandbox ls lists the sandboxes of this node/);
    const { HYPEMAN_API_KEY: _key, ...keyless } = env;
    assert.match((await runGuestctl(["sandbox", "ls"], keyless)).stderr, /HYPEMAN_API_KEY/);
    const unset = { HYPEMAN_BASE_URL: "", GUESTCTL_AGENT: "", GUESTCTL_NODE_ID: "", GUESTCTL_STATE: "" };
    const local = await runGuestctl(["sandbox", "ls", "--api", substrate.baseUrl], { ...env, ...unset });
    assert.deepEqual([local.exitCode, local.stderr], [0, ""]);
    substrate.machines.complaint = NO_SHELL;
    const unsuitable = await sandbox("create", IMAGE);
    substrate.machines.complaint = undefined;
    assert.match(
      unsuitable.stderr,
      /\[IMAGE_UNSUITABLE\]; use an image that does not start its own init, .*\n {2}console: .*failed to start entrypoint.*\n$/,
    );
    const away = await runGuestctl(["sandbox", "sweep", "--api", "http://127.0.0.1:1"], env);
    assert.match(away.stderr, /\[SUBSTRATE_UNAVAILABLE\]; check that the daemon runs/);
    for (const [args, said] of [
      [["toString"], /unknown sandbox command "toString"; available: create, ls, /],
      [["statsu"], /unknown sandbox command "statsu"; did you mean status\?/],
      [["--json"], /no sandbox command given; available: create, ls/],
      [["create"], /sandbox create requires an image/],
      [
        ["create", IMAGE, "--name", "x"],
        /write --name before the image, because everything after the image is the workload's command/,
      ],
      [["standby"], /sandbox standby requires the name of one sandbox/],
      [["status"], /sandbox status requires the name of one sandbox/],
      [
        ["ls", "--filter", "colour=red"],
        /--filter requires KEY=VALUE with one of the keys kind, name, state, image, tag/,
      ],
      [["standby", "box", "--freeze", "of"], /--freeze must be on, off or required/],
      [["rm"], /sandbox rm requires names/],
      [["ls", "box"], /sandbox ls takes no arguments/],
      [["node", "box"], /sandbox node takes no arguments/],
      [["images", "box"], /sandbox images takes no arguments/],
      [["publish", "box", "3000"], /requires a name, a port of the sandbox and a hostname/],
      [["publish", "box", "http", "web.a"], /the port must be a whole number/],
      [["publish", "box", "3000", "web.a", "--listen", "65536"], /--listen requires a number from 1 to 65535/],
      [["publish", "box", "3000", "*.a"], /hostname must be a name in lowercase/],
      [["unpublish", "box"], /requires a name and a hostname/],
      [["create", "--idle-action", "hibernate", IMAGE], /idleAction must be none, standby or stop/],
      [["create", "--tag", "novalue", IMAGE], /--tag requires KEY=VALUE/],
      [
        ["create", "-v", "/data:/data", IMAGE],
        /\/data:\/data is a path, but must be the name of an image; -v is short for --verbose, /,
      ],
      [["create", "--process", "/none", IMAGE], /cannot read \/none/],
      [["ls", "--api", "localhost"], /--api requires a URL/],
      [
        ["ls", "--api", "http://me:secret@127.0.0.1:1"],
        /^guestctl: (?!.*secret)--api must not contain a user or password; the daemon only accepts a token/,
      ],
    ] as const) {
      assertRefused(await sandbox(...args), said);
    }
  });

  test("`guestctl sandbox` rejects an option of another verb before it sends a request", async () => {
    const before = substrate.requests.length;
    for (const [args, said] of [
      [
        ["create", "--min-agent", "99.0.0", IMAGE],
        /sandbox create does not take --min-agent; it is an option of sandbox resume, start, fork /,
      ],
      [
        ["create", "--freeze", "required", IMAGE],
        /create does not take --freeze; it is an option of sandbox standby, snapshot, fork, watch /,
      ],
      [["snapshot", "box", "--min-agent", "99.0.0"], /snapshot does not take --min-agent/],
      [["stop", "box", "--freeze", "required"], /stop does not take --freeze/],
      [
        ["standby", "box", "-e", "X=y"],
        /standby does not take -e; it is an option of sandbox create, resume, start, fork /,
      ],
      [["watch", "--vcpus", "3"], /watch does not take --vcpus; it is an option of sandbox create /],
      [["rm", "box", "--take-over"], /rm does not take --take-over; it is an option of sandbox sweep /],
      [
        ["--listen", "99999", "ls"],
        /ls does not take --listen; it is an option of sandbox publish, unpublish, metrics /,
      ],
      [["create", "--env", "UNSET_HERE", IMAGE], /--env UNSET_HERE: guestctl's own environment has no such variable/],
    ] as const) {
      assertRefused(await sandbox(...args), said);
    }
    assert.equal(substrate.requests.length, before);
  });

  test("`--help` of each `guestctl sandbox` verb prints the verb's help and runs nothing", async () => {
    const before = substrate.requests.length;
    const overview = await sandbox();
    assert.deepEqual([overview.exitCode, overview.stderr], [0, ""]);
    const verbs = Array.from(overview.stdout.matchAll(/^ {2}([a-z]+) {2,}/gm), ([, verb = ""]) => verb);
    assert.ok(verbs.length >= 18);
    for (const verb of verbs) {
      const { stdout, exitCode } = await sandbox(verb, "--help");
      assert.match(
        stdout,
        new RegExp(`^Usage: guestctl sandbox ${verb}[ \\n][^]*\\nExamples:\\n(?:  guestctl sandbox ${verb}.*\\n)+$`),
      );
      assert.equal(exitCode, 0);
      for (const line of stdout.split("\n")) assert.ok(line.length <= 120, `${verb}: ${line}`);
      const topic = await runGuestctl(["help", "sandbox", verb, "box", "--", "true"], env);
      assert.equal(topic.stdout, stdout);
    }
    assert.match((await sandbox("stop", "--help")).stdout, /--wait/);
    assert.doesNotMatch((await sandbox("stop", "--help")).stdout, /--vcpus|--freeze/);
    assert.equal(substrate.requests.length, before);
  });

  test("`sandbox -v` reports requests, dialled addresses and retries, but no token", async () => {
    const secrets = [String(env["HYPEMAN_API_KEY"])];
    const listed = await sandbox("ls", "-v");
    const at = `guestctl: the substrate's daemon is ${substrate.baseUrl}; its token is in HYPEMAN_API_KEY\n`;
    const state = join(directory, ".local/state/guestctl/sandboxes");
    assert.ok(
      listed.stderr.startsWith(`${at}guestctl: node node-7; journal and credentials in ${state}\n`),
      listed.stderr,
    );
    assert.match(listed.stderr, /\nguestctl: GET \/instances\S*: 200 after \d+ ms\n/);
    assert.match(listed.stdout, /^NAME/);
    substrate.fail(/^GET \/instances\//, MISSING);
    const lost = await sandbox("--verbose", "status", "box");
    substrate.interfere = () => undefined;
    assert.match(lost.stderr, /guestctl: GET \/instances\/\S+: 404 after \d+ ms\n/);
    const away = await runGuestctl(["-v", "sandbox", "ls", "--api", `http://127.0.0.1:${await freePort()}`], env);
    assert.match(
      away.stderr,
      /\nguestctl: GET \/instances\?state=Stopped: no answer after \d+ ms: connect ECONNREFUSED /,
    );
    const made = await sandbox("create", "-v", "--name", "told", "-e", "SECRET=unseen", IMAGE, "sleep", "100000");
    assert.equal(made.exitCode, 0, made.stderr);
    assert.match(made.stderr, /guestctl: POST \/instances: 201 after \d+ ms\n/);
    const credentials = join(state, "credentials/told");
    assert.ok(made.stderr.includes(`; credentials from ${credentials}\n`), made.stderr);
    assert.match(made.stderr, /guestctl: told: address 127\.[\d.]+:\d+; /);
    assert.match(made.stderr, /guestctl: connected after \d+ ms\n/);
    secrets.push((await readFile(join(credentials, "token"), "utf8")).trim(), "unseen");
    const rotated = await sandbox("rotate", "told", "--verbose", "--json");
    assert.match(rotated.stderr, /\{"verbose":"told: address \S+; credentials from \/\S+\/told and \/\S+"\}\n/);
    for (const line of rotated.stderr.trim().split("\n")) JSON.parse(line);
    secrets.push((await readFile(join(credentials, "token"), "utf8")).trim());
    const run = await runGuestctl(["-v", "exec", "--sandbox", "told", "true"], env);
    assert.match(run.stderr, /guestctl: GET \/instances\/\S+: 200 after \d+ ms\n(?:.*\n)*guestctl: connected after/);
    assert.match(run.stderr, new RegExp(`\\nguestctl: address 127\\..*; credentials in ${credentials}\\n`));
    assert.equal((await sandbox("rm", "told")).exitCode, 0);
    for (const { stdout, stderr } of [listed, lost, away, made, rotated, run])
      for (const secret of secrets) assert.ok(!`${stdout}${stderr}`.includes(secret), `${secret} in ${stderr}`);
  });

  test("`sandbox -v` reports each retry while the agent does not answer yet", async (t) => {
    const started = join(directory, "started.fifo");
    execFileSync("mkfifo", [started]);
    // Its machine has an address already, and closes each connection to it until the agent listens.
    const agent = substrate.agentOf("late", `read line < '${started}'\nexec ${substrate.agentLine} "$@"`);
    const words = ["--name", "late", "--wait", "60s", "--agent", agent, IMAGE, "sleep", "100000"];
    const create = startGuestctl(["sandbox", "create", "-v", ...ofCreate, ...words], env);
    t.after(() => create.kill("SIGKILL"));
    let printed = "";
    for await (const line of createInterface(create.stderr)) {
      printed += `${line}\n`;
      if (line.startsWith("guestctl: trying again: ") && printed.match(/trying again: /g)?.length === 2)
        await writeFile(started, "go\n");
    }
    assert.equal(await create.ended, 0, printed);
    const requests = "(?:guestctl: GET .+\\n)*";
    const dialled = "guestctl: late: address 127\\.[\\d.]+:\\d+; credentials from /\\S+/late\\nguestctl: connecting\\n";
    const failed = `${dialled}guestctl: no connection after \\d+ ms.*\\n${requests}guestctl: trying again: .+\\n`;
    assert.match(
      printed,
      new RegExp(`${failed}${requests}${failed}${requests}${dialled}(?:.*\\n)*guestctl: connected `),
    );
    assert.equal((await sandbox("rm", "late")).exitCode, 0);
  });

  test("`sandbox ls -q` prints names, and `--filter` selects sandboxes", async () => {
    for (const [filters, names] of [
      [[], "box\ntwin\ntaken\n"],
      [["kind=snapshot"], "taken\n"],
      [["kind=sandbox", "name=t"], "twin\n"],
      [["name=box", "name=take"], "box\ntaken\n"],
      [["state=running"], "box\ntwin\n"],
      [["image=debian", "tag=a=b=c"], "box\n"],
      [["tag=a=b"], ""],
    ] as const) {
      const { stdout } = await sandbox("ls", "-q", ...filters.flatMap((filter) => ["--filter", filter]));
      assert.equal(stdout, names, filters.join(" "));
    }
  });

  test("`sandbox create` passes variables and takes the command after the image", async () => {
    const file = join(directory, "variables.env");
    await writeFile(file, "FROM_FILE=1\n");
    const command = ["sh", "-c", 'echo "$FROM_FILE $GIVEN"; exec sleep 100000'];
    const binary = `${file}.binary`;
    await writeFile(binary, Buffer.from("ONE=1\nTWO=a\xffb\n", "latin1"));
    const altered = await sandbox("create", "--name", "vars", "--env-file", binary, IMAGE, ...command);
    assertRefused(altered, /binary: line 2 is not valid UTF-8 at byte 5 of the line\n$/);
    const made = await sandbox("create", "--name", "vars", "-e", "GIVEN=x y", "--env-file", file, IMAGE, ...command);
    assert.equal(made.exitCode, 0, made.stderr);
    const printed = await runGuestctl(["exec", "--sandbox", "vars", "--", "sh", "-c", 'echo "$FROM_FILE $GIVEN"'], env);
    assert.equal(printed.stdout, "1 x y\n");
    assert.equal((await sandbox("rm", "vars")).exitCode, 0);
  });

  test("`sandbox publish` and `sandbox unpublish` start and stop routing a hostname", async () => {
    const [port, listen] = [String(await freePort()), String(await freePort())];
    const args = ["publish", "box", port, "web.example.com", "--listen", listen];
    const unknown = await sandbox(...args);
    assert.deepEqual(
      [unknown.exitCode, unknown.stdout],
      [0, `web.example.com:${listen} -> ${port} of box; use --wait to check that the ingress serves it\n`],
      unknown.stderr,
    );
    const waited = await sandbox(...args, "--wait", "1ms");
    assertRefused(waited, /\[GUEST_NOT_LISTENING\]; check that the server in the sandbox runs/);
    assert.match((await sandbox("ls")).stdout, new RegExp(` web\\.example\\.com:${listen} -> ${port} `));
    const [first = {}] = (await json("ls"))["sandboxes"] as Json[];
    const [published = {}] = first["published"] as Json[];
    const { hostname, listen_port, port: told } = published;
    assert.deepEqual([hostname, listen_port, told], ["web.example.com", Number(listen), Number(port)]);
    const ended = await sandbox("unpublish", "box", "web.example.com", "--listen", listen);
    assert.deepEqual([ended.exitCode, ended.stdout], [0, "web.example.com is unpublished\n"]);
    assert.deepEqual(substrate.ingresses.list({}), []);
  });

  test("`sandbox stop` stops a sandbox, and `sandbox start` boots it again", async () => {
    await sandbox("create", "--name", "other", "--hypervisor", "qemu", "--overlay-size", "20GB", "--vcpus", "1", IMAGE);
    const { hypervisor, overlay_size, vcpus } = substrate.created.at(-1) ?? {};
    assert.deepEqual([hypervisor, overlay_size, vcpus], ["qemu", "20GB", 1]);
    const stopped = await sandbox("stop", "other");
    assert.deepEqual([stopped.exitCode, stopped.stdout], [0, "other is stopped\n"], stopped.stderr);
    assert.equal((await sandbox("start", "other")).stdout, "other has booted\n");
    const again = await json("stop", "other");
    assert.deepEqual([again["warnings"], (again["sandbox"] as Json)["state"]], [[], "Stopped"]);
    assert.equal((await sandbox("rm", "other")).exitCode, 0);
  });

  test("`sandbox sweep` suggests `--take-over` for sandboxes recorded in another journal", async () => {
    const other = { ...env, GUESTCTL_STATE: join(substrate.stateDirectory, "../other-cli") };
    assertRefused(await runGuestctl(["sandbox", "sweep"], other), /\[NODE_ID_CONFLICT\]; .*sweep with --take-over\n/);
  });

  test("`sandbox watch` runs until SIGINT, and `sandbox ls` works meanwhile", async () => {
    const made = await sandbox("create", "--name", "idler", "--idle-action", "standby", "--process", idle, IMAGE);
    assert.equal(made.exitCode, 0, made.stderr);
    const watch = startGuestctl(["sandbox", "watch", "--poll", "50ms", "--json"], env);
    let line = await watch.lines.next();
    while (line.done !== true && !line.value.includes("standby")) line = await watch.lines.next();
    assert.deepEqual(JSON.parse(String(line.value)), {
      name: "idler",
      event: "standby",
      message: "its workload has declared itself idle",
    });
    assert.match((await sandbox("ls")).stdout, /\nidler +Standby +/);
    assert.equal((await sandbox("rm", "idler")).stdout, "idler is gone\n");
    watch.kill("SIGINT");
    assert.equal(await watch.ended, 0);
  });

  test("`sandbox metrics` declares each metric once and prints its value for every running sandbox", async () => {
    const { stdout, exitCode } = await sandbox("metrics");
    assert.equal(exitCode, 0);
    for (const name of ["box", "twin"]) {
      assert.match(stdout, new RegExp(`^guest_up\\{sandbox="${name}"\\} 1$`, "m"));
      assert.match(stdout, new RegExp(`^guest_uptime_seconds_total\\{sandbox="${name}"\\} [\\d.]+$`, "m"));
    }
    const types = Array.from(stdout.matchAll(/^# TYPE (\S+)/gm), ([, name]) => name);
    assert.deepEqual(types, [...new Set(types)]);
    const { sandboxes } = (await json("metrics")) as { readonly sandboxes: readonly Json[] };
    assert.deepEqual(
      sandboxes.map(({ name, usage }) => [name, typeof (usage as Json)["uptime_us"]]),
      [
        ["box", "string"],
        ["twin", "string"],
      ],
    );
  });

  test("`sandbox metrics --listen` serves metrics over HTTP until SIGINT", async () => {
    const server = startGuestctl(["sandbox", "metrics", "--listen", "0"], env);
    const line = await server.lines.next();
    const url = String(line.value);
    for (let scrape = 0; scrape < 2; scrape++) {
      const response = await fetch(url);
      assert.match(response.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/);
      assert.match(await response.text(), /^guest_up\{sandbox="box"\} 1$/m);
    }
    assert.equal((await fetch(new URL("/", url))).status, 404);
    assert.equal((await fetch(url, { method: "POST" })).status, 405);
    server.kill("SIGTERM");
    assert.equal(await server.ended, 0);
    assertRefused(await sandbox("metrics", "--listen", "here"), /--listen requires \[HOST:\]PORT, not "here"/);
  });

  test("after `sandbox rm` of every sandbox, `sandbox sweep` finds nothing", async () => {
    await sandbox("stop", "box");
    const stopped = await runGuestctl(["exec", "--sandbox", "box", "--", "true"], env);
    assert.match(stopped.stderr, /box is stopped .*; boot it again: guestctl sandbox start box\n$/);
    const { GUESTCTL_AGENT: _agent, ...agentless } = env;
    const without = await runGuestctl(["sandbox", "create", IMAGE], agentless);
    assert.match(
      without.stderr,
      /\[INVALID_SPEC\]; name the agent's \.tar\.gz archive with --agent or GUESTCTL_AGENT; "npm run build" .* makes dist\/\S+\.tar\.gz\n$/,
    );
    const some = await sandbox("rm", "none", "taken");
    assert.deepEqual([some.exitCode, some.stdout], [1, "taken is gone\n"]);
    assert.match(
      some.stderr,
      /there is no sandbox or snapshot "none" in the journal of \/.* \[NOT_FOUND\]; guestctl sandbox ls /,
    );
    assertRefused(await sandbox("rm", "none"), /\[NOT_FOUND\]; /);
    assert.deepEqual(await sandbox("rm", "-f", "none"), { exitCode: 0, stdout: "", stderr: "" });
    const gone = await sandbox("rm", "box", "twin");
    assert.deepEqual([gone.exitCode, gone.stdout], [0, "box is gone\ntwin is gone\n"]);
    assert.deepEqual(substrate.left(), []);
    assert.equal((await sandbox("sweep", "--dry-run")).stdout, "nothing to sweep\n");
    assert.deepEqual(await sandbox("sweep"), { exitCode: 0, stdout: "nothing to sweep\n", stderr: "" });
    await chmod(join(env["HOME"] ?? "", ".local/state/guestctl/sandboxes"), 0o755);
    assert.match((await sandbox("ls")).stderr, /chmod 700 .*\[JOURNAL_FAILED\]/);
  });
});
