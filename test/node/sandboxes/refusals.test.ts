import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";
import { promisify } from "node:util";
import { ApiFailure, SchemaFailure } from "../../substrate/double/failure.ts";
import { ALL_SCOPES } from "../../substrate/double/server.ts";
import { connectHypeman } from "../../../src/node/sandboxes/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { listener } from "../../fixtures/listeners.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertRefused, codeOf, CREATE, failureOf, nodeCommand, openNode, partsOf, SPEC, traces } from "./node.ts";
import { NO_SHELL } from "./process-machines.ts";
import { HttpSubstrate, INTERNAL, MISSING } from "./substrate.ts";

const substrate = forAllTests(await HttpSubstrate.start());
const node = forAllTests(await openNode(partsOf(substrate), { settleTimeoutMs: 300 }));

describe("create failures", NEEDS_NAMESPACES, () => {
  afterEach(async () => {
    substrate.interfere = () => undefined;
    assert.deepEqual(substrate.left(), [], "nothing is left at the substrate");
    assert.deepEqual(await traces(node, substrate.stateDirectory), [], "nor here");
  });

  test("`create` without a daemon fails with SUBSTRATE_UNAVAILABLE", async () => {
    await substrate.shut();
    await assertRefused(node.create(SPEC), "SUBSTRATE_UNAVAILABLE", /ECONNREFUSED/, /daemon/);
    await substrate.listen();
  });

  test("`create` fails with SUBSTRATE_UNAVAILABLE if the connection breaks before the instance exists", async () => {
    substrate.fail(CREATE, "cut");
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
  });

  test("a sweep removes what `create` left behind when the daemon died", async () => {
    substrate.interfere = async (request, when) => {
      if (request !== CREATE || when !== "after") return undefined;
      await substrate.shut();
      return "cut";
    };
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    await substrate.listen();
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
    assert.equal(await codeOf(node.create(SPEC)), "ALREADY_EXISTS");
    assert.equal(await codeOf(node.connect("box")), "WRONG_STATE");
    const { removed, orphans, failed } = await node.sweep();
    assert.deepEqual([removed, orphans, failed], [["box"], [], []], "told once, with all that belongs to it");
  });

  test("`create` fails with SUBSTRATE_FAILED if the daemon answers internal_error", async () => {
    for (const call of [CREATE, "POST /volumes/from-archive"]) {
      substrate.fail(call, INTERNAL);
      await assertRefused(node.create(SPEC), "SUBSTRATE_FAILED", /500 internal_error: failed/, /the daemon's own log/);
    }
  });

  test("`create` fails with CAPABILITY_MISSING for memory above the daemon's per-instance limit", async () => {
    substrate.rules.memoryBytes = 64 * 2 ** 30;
    substrate.fail(CREATE, INTERNAL);
    const { code, message, nextStep } = await failureOf(node.create({ ...SPEC, memory: "33GB" }));
    substrate.rules.memoryBytes = 8 * 2 ** 30;
    assert.equal(code, "CAPABILITY_MISSING");
    assert.match(
      message,
      /^memory is 33792 MiB, which may exceed the daemon's limit for an instance \(by default 32768 MiB\)/,
    );
    assert.match(nextStep ?? "", /limits\.max_memory_per_instance/);
  });

  test("`create` reports the daemon's text if its response is not valid JSON", async () => {
    substrate.fail(CREATE, new SchemaFailure("/", '"name" is wrong'));
    await assertRefused(node.create(SPEC), "SUBSTRATE_REFUSED", /"name" is wrong/);
  });

  test("`create` fails with IMAGE_NOT_READY for a missing or unready image", async () => {
    substrate.addImage("half:1", { status: "converting" });
    substrate.addImage("broken", { name: "docker.io/library/broken:latest", status: "failed", error: "no mkfs.erofs" });
    for (const [image, said, next] of [
      ["half:1", /half:1 is converting, not ready/, /^wait until/],
      ["broken", /broken:latest is failed, not ready: no mkfs.erofs/, /^read the reason in the daemon's log/],
      ["none:1", /has no image none:1/, /hypeman pull none:1, or POST \/images/],
    ] as const) {
      await assertRefused(node.create({ image }), "IMAGE_NOT_READY", said, next);
    }
    // The image stops being ready in between.
    substrate.fail(CREATE, new ApiFailure(400, "image_not_ready", "image is not ready"));
    assert.equal(await codeOf(node.create(SPEC)), "IMAGE_NOT_READY");
  });

  test("`create` with an invalid token fails with SUBSTRATE_UNAUTHORIZED without printing the token", async () => {
    const { baseUrl } = substrate;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "a-wrong-token" }),
      stateDirectory: join(substrate.stateDirectory, "../other-state"),
    });
    const failure = await assertRefused(other.create(SPEC), "SUBSTRATE_UNAUTHORIZED");
    assert.ok(!`${failure.message}${String(failure.cause)}`.includes("a-wrong-token"));
  });

  test("`connectHypeman` refuses a baseUrl with a password, and does not print it", async () => {
    for (const baseUrl of ["http://me:secret@127.0.0.1:1", "ftp://me:secret@127.0.0.1", "//me:secret@127.0.0.1"]) {
      const { message } = await assertRefused(connectHypeman({ baseUrl, apiToken: "any" }), "INVALID_SPEC");
      assert.match(message, /^baseUrl (?:must not contain a user or password|requires a URL)/);
      assert.doesNotMatch(message, /secret/);
    }
  });

  test("`connectHypeman` rejects an invalid API token without printing the token", async () => {
    for (const apiToken of ["secret\nvalue", "secret\0", "sec ret", "secret\u{20ac}", " \n", 5 as never]) {
      const { message } = await assertRefused(connectHypeman({ apiToken }), "INVALID_SPEC");
      assert.match(message, /^apiToken (?:may contain only visible ASCII|is empty|is not text)/);
      assert.doesNotMatch(message, /sec/);
    }
    // A file ends with a line break.
    await connectHypeman({ apiToken: "secret\n" });
  });

  test("SUBSTRATE_UNAUTHORIZED names the token's missing scope and all required scopes", async () => {
    substrate.rules.scopes = ALL_SCOPES.difference(new Set(["volume:write"]));
    const { code, message, nextStep } = await failureOf(node.create(SPEC));
    substrate.rules.scopes = undefined;
    assert.equal(code, "SUBSTRATE_UNAUTHORIZED");
    assert.match(message, /403 Forbidden: missing required scope: volume:write/);
    for (const scope of ALL_SCOPES) {
      if (scope === "image:write" || scope === "image:delete") continue;
      assert.match(nextStep ?? "", new RegExp(`\\b${scope}\\b`));
    }
  });

  test("`create` fails with SUBSTRATE_UNAVAILABLE if the daemon's response never ends", async () => {
    await using endless = await listener((socket) => void socket.write("HTTP/1.1 200 OK\r\n\r\n{"));
    const baseUrl = `http://127.0.0.1:${endless.port}`;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "any", timeoutMs: 300 }),
      stateDirectory: join(substrate.stateDirectory, "../other-state"),
    });
    assert.equal(await codeOf(other.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
  });

  test("`create` rejects a daemon that lacks /capabilities and /resources, or ignores tags", async () => {
    substrate.fail(/capabilities|resources/, MISSING);
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    substrate.edits.set(CREATE, (instance: object) => ({ ...instance, tags: {} }));
    assert.equal(await codeOf(node.create(SPEC)), "CAPABILITY_MISSING");
    substrate.edits.delete(CREATE);
  });

  test("`create` fails with CAPABILITY_MISSING if the host lacks the resources or hypervisor", async () => {
    const called = substrate.requests.length;
    for (const [difference, said] of [
      [{ vcpus: 5000 }, /vcpus is 5000 processors, but the host has only \d+ /],
      [{ memory: "9GB" }, /memory is 9216 MiB, but the host has only 8192 MiB/],
      // hypeman 8853445: a bare internal error (lib/instances/create.go:146-148).
      [{ hypervisor: "vz" }, /cannot start vz on this host; it can start: qemu/],
    ] as const) {
      await assertRefused(node.create({ ...SPEC, ...difference }), "CAPABILITY_MISSING", said);
    }
    substrate.features = ["snapshots", "fork"];
    assert.match(
      (await failureOf(node.create({ ...SPEC, idleAction: "standby" }))).message,
      /idleAction requires standby/,
    );
    substrate.features = ["snapshots", "standby", "fork"];
    assert.ok(substrate.requests.slice(called).every((request) => request.startsWith("GET ")));
  });

  test("`create` fails with IMAGE_UNSUITABLE for an image that has its own init", async () => {
    // hypeman 8853445, lib/images/systemd.go, lib/instances/configdisk.go.
    substrate.addImage("systemd:1", { cmd: ["/lib/systemd/systemd"] });
    substrate.addImage("systemd:2", { entrypoint: ["/sbin/init"], cmd: ["--log-target=console"] });
    for (const name of ["systemd:1", "systemd:2"]) {
      const { message } = await assertRefused(node.create({ ...SPEC, image: name }), "IMAGE_UNSUITABLE");
      assert.match(message, /the substrate starts \/\S+ of the image systemd:. as the guest's init/);
    }
  });

  test("`create` fails with AGENT_ENDED if the agent rejects its specs", async () => {
    const { consoleTail } = await assertRefused(
      node.create({ ...SPEC, process: { args: ["sleep", "1000"], cwd: "relative" } }),
      "AGENT_ENDED",
      /status 78/,
    );
    assert.match(consoleTail.join("\n"), /^guest-agent: .*SVC_PROCESS_SPEC_FILE/m, "and the console's last lines");
  });

  test("`create` fails early with IMAGE_UNSUITABLE for an image without /bin/sh", async () => {
    // A kernel that panics over its init's end writes its registers behind that.
    substrate.machines.complaint = [NO_SHELL, ...Array.from({ length: 38 }, (_, n) => `R${n}: 0`)].join("\n");
    const { code, message, nextStep, consoleTail } = await failureOf(node.create(SPEC));
    substrate.machines.complaint = undefined;
    assert.equal(code, "IMAGE_UNSUITABLE");
    assert.deepEqual([consoleTail[0], consoleTail.length], [NO_SHELL, 10]);
    assert.match(message, /debian:12.*fork\/exec \/bin\/sh: no such file or directory/);
    assert.match(nextStep ?? "", /\/bin\/sh/);
  });

  test("`create` fails with IMAGE_UNSUITABLE if the image's WORKDIR does not exist", async () => {
    // busybox, dash, bash: init runs `cd WORKDIR && exec …` by the image's own shell.
    for (const words of [
      "/bin/sh: cd: line 0: can't cd to /does/not/exist: No such file or directory",
      "/bin/sh: 1: cd: can't cd to /does/not/exist",
      "/bin/sh: line 1: cd: /does/not/exist: No such file or directory",
    ]) {
      substrate.machines.complaint = words;
      const problem =
        /^init cannot start anything in the image debian:12: its WORKDIR \/does\/not\/exist cannot be entered$/;
      const { consoleTail } = await assertRefused(
        node.create(SPEC),
        "IMAGE_UNSUITABLE",
        problem,
        /^create that directory in the image, or remove the image's WORKDIR/,
      );
      assert.deepEqual(consoleTail, [words]);
    }
    substrate.machines.complaint = undefined;
  });

  test("`create` fails early with AGENT_UNREACHABLE if init never started the agent", async () => {
    // hypeman 8853445, lib/system/init/mode_exec.go:103, as printed on a busy host.
    const words =
      "2026-11-29T16:50:37Z [ERROR] [hypeman-init:setup] guest-agent readiness gate failed; not launching entrypoint: timed out after 10s waiting for guest-agent readiness signal";
    substrate.machines.complaint = words;
    const { consoleTail } = await assertRefused(
      node.create(SPEC),
      "AGENT_UNREACHABLE",
      /^the daemon's init did not start the agent, because .* was not ready: timed out after 10s/,
      /^try again when the host is less busy/,
    );
    substrate.machines.complaint = undefined;
    assert.deepEqual(consoleTail, [words]);
    assert.deepEqual(substrate.left(), []);
  });

  test("`create` fails early with AGENT_UNREACHABLE if the guest's kernel panics", async () => {
    const words = "[    0.061234] Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug";
    substrate.machines.complaint = `[    0.05] before\n${words}\n[    0.07] behind`;
    const problem = /^the guest's kernel has panicked: \[ +0\.061234\] Kernel panic - not syncing: IO-APIC/;
    const refused = assertRefused(node.create(SPEC), "AGENT_UNREACHABLE", problem, /^try again; /);
    const { consoleTail } = await refused;
    substrate.machines.complaint = undefined;
    assert.deepEqual(consoleTail, [words, "[    0.07] behind"]);
  });

  test("an AGENT_UNREACHABLE error contains the console's last lines if no agent answers", async () => {
    const directory = join(substrate.stateDirectory, "../silent-state");
    const agent = { archive: substrate.agentOf("silent", "seq 3 9; exec sleep 100000") };
    using silent = await openNode(partsOf(substrate), { stateDirectory: directory, agent, reachTimeoutMs: 1 });
    // The node waits once the instance is made: its console is complete by then.
    substrate.interfere = async (request, when) => {
      if (request === CREATE && when === "after") await substrate.said("box", /^9$/m);
      return undefined;
    };
    const { code, consoleTail } = await failureOf(silent.create(SPEC));
    assert.deepEqual([code, consoleTail], ["AGENT_UNREACHABLE", ["3", "4", "5", "6", "7", "8", "9"]]);
    assert.deepEqual(await traces(silent, directory), []);
  });

  test("`create` fails with JOURNAL_FAILED if the node's disk is full", NEEDS_NAMESPACES, async () => {
    const directory = join(substrate.stateDirectory, "../full");
    await mkdir(directory);
    const parts = { ...partsOf(substrate), stateDirectory: join(directory, "state") };
    const run = nodeCommand(parts, "create-on-full-disk");
    const mount = `mount -t tmpfs -o size=256k tmpfs '${directory}' && exec "$@"`;
    const { stdout } = await promisify(execFile)("unshare", ["-m", "sh", "-c", mount, "sh", ...run]);
    assert.equal(stdout, "JOURNAL_FAILED\n");
  });
});
