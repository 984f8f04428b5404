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

describe("a sandbox that cannot be made", NEEDS_NAMESPACES, () => {
  afterEach(async () => {
    substrate.interfere = () => undefined;
    assert.deepEqual(substrate.left(), [], "nothing is left at the substrate");
    assert.deepEqual(await traces(node, substrate.stateFolder), [], "nor here");
  });

  test("for want of a daemon: SUBSTRATE_UNAVAILABLE", async () => {
    await substrate.shut();
    await assertRefused(node.create(SPEC), "SUBSTRATE_UNAVAILABLE", /ECONNREFUSED/, /daemon/);
    await substrate.listen();
  });

  test("as the connection is cut before the instance is made: SUBSTRATE_UNAVAILABLE", async () => {
    substrate.fail(CREATE, "cut");
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
  });

  test("as the daemon dies over it: what it has made is left to the next sweep", async () => {
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

  test("by a daemon that says no more than internal_error, as with a full disk: SUBSTRATE_FAILED", async () => {
    for (const call of [CREATE, "POST /volumes/from-archive"]) {
      substrate.fail(call, INTERNAL);
      await assertRefused(node.create(SPEC), "SUBSTRATE_FAILED", /500 internal_error: failed/, /journal/);
    }
  });

  test("by the daemon's own limits for one instance, which it does not tell: CAPABILITY_MISSING by the field", async () => {
    substrate.rules.memoryBytes = 64 * 2 ** 30;
    substrate.fail(CREATE, INTERNAL);
    const { code, message, nextStep } = await failureOf(node.create({ ...SPEC, memory: "33GB" }));
    substrate.rules.memoryBytes = 8 * 2 ** 30;
    assert.equal(code, "CAPABILITY_MISSING");
    assert.match(message, /^memory requires 33792 MiB, and the daemon may allow one instance 32768 MiB/);
    assert.match(nextStep ?? "", /limits\.max_memory_per_instance/);
  });

  test("by a daemon whose answer is not valid JSON: its text is the message", async () => {
    substrate.fail(CREATE, new SchemaFailure("/", '"name" is wrong'));
    await assertRefused(node.create(SPEC), "SUBSTRATE_REFUSED", /"name" is wrong/);
  });

  test("of an image that is not there or not ready: IMAGE_NOT_READY", async () => {
    substrate.addImage("half:1", { status: "converting" });
    substrate.addImage("broken", { name: "docker.io/library/broken:latest", status: "failed", error: "no mkfs.erofs" });
    for (const [image, said, next] of [
      ["half:1", /half:1 is converting, not ready/, /^wait until/],
      ["broken", /broken:latest is failed, not ready: no mkfs.erofs/, /^the daemon's journal/],
      ["none:1", /has no image none:1/, /hypeman pull none:1, or POST \/images/],
    ] as const) {
      await assertRefused(node.create({ image }), "IMAGE_NOT_READY", said, next);
    }
    // The image stops being ready in between.
    substrate.fail(CREATE, new ApiFailure(400, "image_not_ready", "image is not ready"));
    assert.equal(await codeOf(node.create(SPEC)), "IMAGE_NOT_READY");
  });

  test("with a token that the daemon does not take: SUBSTRATE_UNAUTHORIZED, and the token is in no message", async () => {
    const { baseUrl } = substrate;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "a-wrong-token" }),
      folder: join(substrate.stateFolder, "../other-state"),
    });
    const failure = await assertRefused(other.create(SPEC), "SUBSTRATE_UNAUTHORIZED");
    assert.ok(!`${failure.message}${String(failure.cause)}`.includes("a-wrong-token"));
  });

  test("with a token that does not allow it: SUBSTRATE_UNAUTHORIZED, with the scope that is wanting and all that are needed", async () => {
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

  test("by a daemon that never ends its answer: SUBSTRATE_UNAVAILABLE", async () => {
    await using endless = await listener((socket) => void socket.write("HTTP/1.1 200 OK\r\n\r\n{"));
    const baseUrl = `http://127.0.0.1:${endless.port}`;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "any", timeoutMs: 300 }),
      folder: join(substrate.stateFolder, "../other-state"),
    });
    assert.equal(await codeOf(other.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
  });

  test("by a daemon of an older API, which has neither /capabilities nor /resources, or drops tags", async () => {
    substrate.fail(/capabilities|resources/, MISSING);
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    substrate.edits.set(CREATE, (instance: object) => ({ ...instance, tags: {} }));
    assert.equal(await codeOf(node.create(SPEC)), "CAPABILITY_MISSING");
    substrate.edits.delete(CREATE);
  });

  test("on a host that has not so much at all, or not that hypervisor: CAPABILITY_MISSING, before anything is made", async () => {
    const called = substrate.requests.length;
    for (const [difference, said] of [
      [{ vcpus: 5000 }, /vcpus requires 5000 processors; the host has \d+ /],
      [{ memory: "9GB" }, /memory requires 9216 MiB; the host has 8192 MiB/],
      // hypeman 8853445: a bare internal error (lib/instances/create.go:146-148).
      [{ hypervisor: "vz" }, /cannot start vz on this host; it can start: qemu/],
    ] as const) {
      await assertRefused(node.create({ ...SPEC, ...difference }), "CAPABILITY_MISSING", said);
    }
    substrate.features = ["snapshots", "fork"];
    assert.match((await failureOf(node.create({ ...SPEC, idleAction: "standby" }))).message, /has no standby/);
    substrate.features = ["snapshots", "standby", "fork"];
    assert.ok(substrate.requests.slice(called).every((request) => request.startsWith("GET ")));
  });

  test("of an image with an init of its own, which the substrate starts in the agent's place: IMAGE_UNSUITABLE", async () => {
    // hypeman 8853445, lib/images/systemd.go, lib/instances/configdisk.go.
    substrate.addImage("systemd:1", { cmd: ["/lib/systemd/systemd"] });
    substrate.addImage("systemd:2", { entrypoint: ["/sbin/init"], cmd: ["--log-target=console"] });
    for (const name of ["systemd:1", "systemd:2"]) {
      const { message } = await assertRefused(node.create({ ...SPEC, image: name }), "IMAGE_UNSUITABLE");
      assert.match(message, /the substrate starts \/\S+ of the image systemd:. as its init/);
    }
  });

  test("with an agent that refuses its specs and leaves: AGENT_ENDED, with its status", async () => {
    const { consoleTail } = await assertRefused(
      node.create({ ...SPEC, process: { args: "no list" } }),
      "AGENT_ENDED",
      /status 78/,
    );
    assert.match(consoleTail.join("\n"), /^guest-agent: .*SVC_PROCESS_SPEC_FILE/m, "and the console's last lines");
  });

  test("of an image without /bin/sh, by which init starts every entrypoint: IMAGE_UNSUITABLE, long before the limit", async () => {
    // A kernel that panics over its init's end writes its registers behind that.
    substrate.machines.complaint = [NO_SHELL, ...Array.from({ length: 38 }, (_, n) => `R${n}: 0`)].join("\n");
    const { code, message, nextStep, consoleTail } = await failureOf(node.create(SPEC));
    substrate.machines.complaint = undefined;
    assert.equal(code, "IMAGE_UNSUITABLE");
    assert.deepEqual([consoleTail[0], consoleTail.length], [NO_SHELL, 10]);
    assert.match(message, /debian:12.*fork\/exec \/bin\/sh: no such file or directory/);
    assert.match(nextStep ?? "", /\/bin\/sh/);
  });

  test("of an image whose WORKDIR does not exist: IMAGE_UNSUITABLE, with the directory and what to do", async () => {
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
        /^make that directory in the image, or remove its WORKDIR/,
      );
      assert.deepEqual(consoleTail, [words]);
    }
    substrate.machines.complaint = undefined;
  });

  test("in a guest whose kernel panics: AGENT_UNREACHABLE, long before the limit", async () => {
    const words = "[    0.061234] Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug";
    substrate.machines.complaint = `[    0.05] before\n${words}\n[    0.07] behind`;
    const problem = /^the guest's kernel has panicked: \[ +0\.061234\] Kernel panic - not syncing: IO-APIC/;
    const refused = assertRefused(node.create(SPEC), "AGENT_UNREACHABLE", problem, /^try again; /);
    const { consoleTail } = await refused;
    substrate.machines.complaint = undefined;
    assert.deepEqual(consoleTail, [words, "[    0.07] behind"]);
  });

  test("with an agent that never answers: AGENT_UNREACHABLE, with the console's last lines", async () => {
    const folder = join(substrate.stateFolder, "../silent-state");
    const agent = { archive: substrate.agentOf("silent", "seq 3 9; exec sleep 100000") };
    using silent = await openNode(partsOf(substrate), { folder, agent, reachTimeoutMs: 1 });
    // The node waits once the instance is made: its console is complete by then.
    substrate.interfere = async (request, when) => {
      if (request === CREATE && when === "after") await substrate.said("box", /^9$/m);
      return undefined;
    };
    const { code, consoleTail } = await failureOf(silent.create(SPEC));
    assert.deepEqual([code, consoleTail], ["AGENT_UNREACHABLE", ["3", "4", "5", "6", "7", "8", "9"]]);
    assert.deepEqual(await traces(silent, folder), []);
  });

  test("on a full disk of the node: JOURNAL_FAILED", NEEDS_NAMESPACES, async () => {
    const folder = join(substrate.stateFolder, "../full");
    await mkdir(folder);
    const parts = { ...partsOf(substrate), stateFolder: join(folder, "state") };
    const run = nodeCommand(parts, "create-on-full-disk");
    const mount = `mount -t tmpfs -o size=256k tmpfs '${folder}' && exec "$@"`;
    const { stdout } = await promisify(execFile)("unshare", ["-m", "sh", "-c", mount, "sh", ...run]);
    assert.equal(stdout, "JOURNAL_FAILED\n");
  });
});
