import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, chown, mkdir, readdir, readlink, rename, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { DirectoryEvent, GuestClient, WatchOptions } from "../../../../src/node/client/index.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import { bindMount, testDirectory, tmpfsMount } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { activityNs, clientOf, failureOf } from "../../../fixtures/guest-client.ts";
import { fuseMount } from "../../../fixtures/programs/index.ts";
import { IN_USER_NAMESPACE, needsUserNamespace } from "../../../fixtures/namespaces.ts";
import { NEEDS_FUSE, NEEDS_INSIGHT, NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

/** A watch that has started, and what it has reported. */
class Watch implements AsyncDisposable {
  readonly events: string[] = [];
  readonly #values: AsyncIterableIterator<DirectoryEvent>;
  readonly ended: Promise<unknown>;

  static async of(path: string, options: WatchOptions = {}, of: GuestClient = client): Promise<Watch> {
    const values = of.files.watch(path, options);
    assert.equal((await values.next()).value?.eventType, "ready");
    return new Watch(values);
  }

  private constructor(values: AsyncIterableIterator<DirectoryEvent>) {
    this.#values = values;
    this.ended = this.#read().catch((error: unknown) => error);
  }

  async #read(): Promise<void> {
    for await (const { eventType, filename, newFilename, isDirectory, errno } of this.#values)
      this.events.push([eventType, filename + (isDirectory ? "/" : ""), newFilename, errno].filter(Boolean).join(" "));
  }

  /** Resolves once it has reported this. */
  async has(...events: readonly string[]): Promise<void> {
    const missing = (): string[] => events.filter((event) => !this.events.includes(event));
    await until(
      () => missing().length === 0,
      () => `it reports ${missing().join(", ")}: ${this.events.join(", ")}`,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#values.return?.();
    await this.ended;
  }
}

/** The targets of an agent's descriptors of inotify. */
async function inotifyInstances(): Promise<number> {
  const fds = await readdir(`/proc/${agent.pid}/fd`);
  const targets = await Promise.all(fds.map((fd) => readlink(`/proc/${agent.pid}/fd/${fd}`).catch(() => "")));
  return targets.filter((target) => target === "anon_inode:inotify").length;
}

describe("a watch of a directory", () => {
  it("Watch reports changes of a directory's entries in order", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("old"), "");
    await using watch = await Watch.of(directory.path);
    await writeFile(directory.at("file"), "content");
    await chmod(directory.at("file"), 0o600);
    await rename(directory.at("file"), directory.at("renamed"));
    await rename(directory.at("old"), `${directory.path}.out`);
    await rename(`${directory.path}.out`, directory.at("in"));
    await rm(directory.at("in"));
    await symlink("somewhere", directory.at("link"));
    await mkdir(directory.at("directory"));
    await chmod(directory.path, 0o711);
    await watch.has("attributes /");
    assert.deepEqual(watch.events, [
      "created file",
      "modified file",
      "closed file",
      "attributes file",
      "moved file renamed",
      "removed old",
      "created in",
      "removed in",
      "created link",
      "created directory/",
      "attributes /",
    ]);
  });

  it("Watch reports changes in subdirectories only if it is recursive", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("sub"));
    await using watch = await Watch.of(directory.path);
    await using all = await Watch.of(directory.path, { recursive: true });
    await writeFile(directory.at("sub/file"), "");
    await writeFile(directory.at("last"), "");
    await all.has("created sub/file", "closed last");
    await watch.has("closed last");
    assert.deepEqual(watch.events, ["created last", "closed last"]);
  });

  it("a recursive watch reports all changes in new and renamed directories", async () => {
    await using directory = await testDirectory();
    await using outside = await testDirectory();
    await mkdir(outside.at("tree/deep"), { recursive: true });
    await writeFile(outside.at("tree/deep/file"), "");
    await using watch = await Watch.of(directory.path, { recursive: true });
    await mkdir(directory.at("a/b/c"), { recursive: true });
    await writeFile(directory.at("a/b/c/file"), "");
    await rename(outside.at("tree"), directory.at("tree"));
    await watch.has("created a/b/c/file", "created tree/deep/file");
    await rename(directory.at("a"), directory.at("z"));
    await writeFile(directory.at("z/b/c/later"), "x");
    await watch.has("moved a/ z", "closed z/b/c/later");
    await rename(directory.at("z/b"), outside.at("b"));
    await watch.has("removed z/b/");
    await writeFile(outside.at("b/c/elsewhere"), "");
    await writeFile(directory.at("last"), "");
    await watch.has("closed last");
    assert.ok(!watch.events.some((event) => event.includes("elsewhere")), watch.events.join(", "));
  });

  it("Watch reports only matching names and skips ignored directories", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("src"));
    await mkdir(directory.at("node_modules/x"), { recursive: true });
    const options = { recursive: true, names: ["*.ts", "docs/**"], ignore: ["node_modules", "*.gen.ts"] };
    await using watch = await Watch.of(directory.path, options);
    await mkdir(directory.at("docs"));
    for (const name of ["src/a.ts", "src/a.js", "src/a.gen.ts", "node_modules/x/a.ts", "docs/page.md"])
      await writeFile(directory.at(name), "");
    await rename(directory.at("src/a.js"), directory.at("src/b.ts"));
    await rename(directory.at("src/a.ts"), directory.at("src/a.gen.ts"));
    await writeFile(directory.at("last.ts"), "");
    await watch.has("closed last.ts", "created docs/page.md");
    // What is created in a new directory may be reported twice: by the listing of the directory, and by its watch.
    const names = new Set(watch.events.filter((event) => !/last|^closed/.test(event)).toSorted());
    assert.deepEqual(
      [...names],
      ["created docs/page.md", "created src/a.ts", "moved src/a.js src/b.ts", "removed src/a.ts"],
    );
    const many = Array.from({ length: 65 }, () => "x");
    const refused = await failureOf(client.files.watch(directory.path, { ignore: many }).next());
    assert.deepEqual([refused.reason, refused.metadata["field"]], ["INVALID_FIELD", "names"]);
  });

  it("Watch reports names that are not UTF-8", async () => {
    await using directory = await testDirectory();
    const values = client.files.watch(directory.path);
    await values.next();
    const name = Buffer.from([0x61, 0xff, 0x0a]);
    await writeFile(Buffer.concat([Buffer.from(`${directory.path}/`), name]), "");
    assert.deepEqual((await values.next()).value?.rawFilename, name);
    await values.return?.();
  });

  it("Watch reports the removal or renaming of its directory, then fails with NOT_FOUND", async () => {
    for (const end of [rmdir, (path: string) => rename(path, `${path}.moved`)]) {
      await using directory = await testDirectory();
      await mkdir(directory.at("watched"));
      await using watch = await Watch.of(directory.at("watched"), { recursive: true });
      await end(directory.at("watched"));
      const error = await failureOf(watch.ended.then((failure) => Promise.reject(failure as Error)));
      assert.deepEqual([error.status, error.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
      assert.deepEqual(watch.events, ["removed /"]);
    }
  });

  it("Watch rejects files, missing paths and paths that leave the `beneath` directory", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "");
    await symlink("/tmp", directory.at("out"));
    for (const [path, options, reason] of [
      [directory.at("file"), {}, "NOT_A_FOLDER"],
      [directory.at("missing"), {}, "PATH_NOT_FOUND"],
      ["relative", {}, "INVALID_FIELD"],
      ["out", { beneath: directory.path }, "PATH_ESCAPES"],
      ["../x", { beneath: directory.path }, "PATH_ESCAPES"],
    ] as const)
      assert.equal((await failureOf(client.files.watch(path, options).next())).reason, reason);
  });

  it("Watch does not follow a symbolic link in the watched directory", async () => {
    await using directory = await testDirectory();
    await using secret = await testDirectory();
    await mkdir(directory.at("sub"));
    await using watch = await Watch.of("sub", { beneath: directory.path, recursive: true });
    await mkdir(secret.at("hidden"));
    await symlink(secret.path, directory.at("sub/link"));
    await mkdir(directory.at("sub/real"));
    await watch.has("created link", "created real/");
    await writeFile(secret.at("hidden/x"), "");
    await writeFile(directory.at("sub/real/last"), "");
    await watch.has("created real/last");
    assert.ok(!watch.events.some((event) => event.includes("hidden")));
  });

  it("Watch reports an unreadable directory with EACCES and continues", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("closed"), { mode: 0o700 });
    await chown(directory.at("closed"), 65_534, 65_534);
    await using user = await startAgent({ through: ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] });
    using other = clientOf(user);
    await using watch = await Watch.of(directory.path, { recursive: true }, other);
    await watch.has("rescan closed/ EACCES");
    await writeFile(directory.at("last"), "");
    await watch.has("closed last");
  });

  it("Watch stays on its file system unless `crossMounts` is set", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await using other = await testDirectory();
    await mkdir(directory.at("mounted"));
    using _mount = bindMount(other.path, directory.at("mounted"));
    await using watch = await Watch.of(directory.path, { recursive: true });
    await using across = await Watch.of(directory.path, { recursive: true, crossMounts: true });
    await mkdir(other.at("sub"));
    await across.has("created mounted/sub/");
    await writeFile(other.at("sub/file"), "");
    await across.has("created mounted/sub/file");
    await writeFile(directory.at("last"), "");
    await watch.has("closed last");
    assert.deepEqual(watch.events, ["created last", "closed last"]);
  });
});

describe("the watches of an agent", () => {
  it("a Watch does not count as user activity and leaks no descriptor", NEEDS_INSIGHT, async () => {
    await using directory = await testDirectory();
    const before = await activityNs(client);
    {
      await using watch = await Watch.of(directory.path);
      await writeFile(directory.at("file"), "");
      await watch.has("closed file");
      assert.ok((await inotifyInstances()) > 0);
    }
    await until(async () => (await inotifyInstances()) === 0, "the instance is closed");
    assert.equal(await activityNs(client), before);
  });

  it("a seventeenth concurrent watch fails with TOO_MANY_WATCHERS", async () => {
    await using directory = await testDirectory();
    // Its own: after a watch is cancelled, its agent counts it until that has arrived.
    await using full = await startAgent();
    using its = clientOf(full);
    await using open = new AsyncDisposableStack();
    for (let count = 0; count < 16; count++) open.use(await Watch.of(directory.path, {}, its));
    const { status, reason } = await failureOf(its.files.watch(directory.path).next());
    assert.deepEqual([status, reason], ["RESOURCE_EXHAUSTED", "TOO_MANY_WATCHERS"]);
  });

  it("a watched file system can be unmounted", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("mounted"));
    using _mount = tmpfsMount(directory.at("mounted"));
    await using watch = await Watch.of(directory.at("mounted"), { recursive: true });
    await until(() => {
      try {
        execFileSync("umount", [directory.at("mounted")], { stdio: "pipe" });
        return true;
      } catch {
        return false;
      }
    }, "it is unmounted");
    const error = await failureOf(watch.ended.then((failure) => Promise.reject(failure as Error)));
    assert.equal(error.reason, "PATH_NOT_FOUND");
  });

  it("Watch's error names fs.inotify.max_user_watches when that limit is reached", needsUserNamespace(), async () => {
    await using directory = await testDirectory();
    for (let index = 0; index < 20; index++) await mkdir(directory.at(`directory-${index}`));
    // A user namespace of its own has its own limit (user_namespaces(7), /proc/sys/fs/inotify).
    const limit = 'echo 10 > /proc/sys/user/max_inotify_watches && exec "$@"';
    const through = [...IN_USER_NAMESPACE, "sh", "-c", limit, "sh"];
    await using limited = await startAgent({ through });
    using other = clientOf(limited);
    const { status, reason, message } = await failureOf(other.files.watch(directory.path, { recursive: true }).next());
    assert.deepEqual([status, reason], ["RESOURCE_EXHAUSTED", "TOO_MANY_DIRECTORIES"]);
    assert.match(message, /fs\.inotify\.max_user_watches/);
    await using watch = await Watch.of(directory.path, {}, other);
    await writeFile(directory.at("file"), "");
    await watch.has("closed file");
  });

  it("a recursive Watch reports changes without /proc", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const withoutProc = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "sh"];
    await using bare = await startAgent({ through: withoutProc });
    using other = clientOf(bare);
    await using watch = await Watch.of(directory.path, { recursive: true }, other);
    await mkdir(directory.at("sub"));
    await writeFile(directory.at("sub/file"), "");
    await watch.has("created sub/file");
  });

  it("after a restore, the client library resumes watches and reports a rescan", async () => {
    await using directory = await testDirectory();
    await using watch = await Watch.of(directory.path, { recursive: true });
    await using once = await Watch.of(directory.path, { resume: false });
    using other = clientOf(agent);
    await other.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    await once.ended;
    await watch.has("rescan /");
    await writeFile(directory.at("file"), "");
    await watch.has("closed file");
    assert.deepEqual(once.events, []);
  });

  it("a watch ends with SHUTTING_DOWN when the agent stops", async () => {
    await using directory = await testDirectory();
    await using other = await startAgent();
    using its = clientOf(other);
    await using watch = await Watch.of(directory.path, {}, its);
    assert.deepEqual(await other.stop(), { code: 0, signal: null });
    const error = await failureOf(watch.ended.then((failure) => Promise.reject(failure as Error)));
    assert.equal(error.reason, "SHUTTING_DOWN");
  });
});

describe("a client that does not read its watch", () => {
  it("a watch with a slow reader sends rescans in place of dropped events", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("sub"));
    const values = client.files.watch(directory.path, { recursive: true });
    assert.equal((await values.next()).value?.eventType, "ready");
    // grpc-js reads ahead up to its window; each name is long, so that the agent's limits are reached soon.
    const names = Array.from({ length: 12_000 }, (_, index) => `${"x".repeat(200)}-${index}`);
    for (const name of names) await writeFile(directory.at(`sub/${name}`), "");
    await writeFile(directory.at("last"), "");
    const seen = new Set<string>();
    let rescans = 0;
    for await (const { eventType, filename } of values) {
      if (eventType === "rescan") {
        rescans += 1;
        for (const name of await readdir(directory.at(filename === "" ? "sub" : filename))) seen.add(`sub/${name}`);
      } else seen.add(filename);
      if (seen.has("last") || filename === "") if (names.every((name) => seen.has(`sub/${name}`))) break;
    }
    assert.ok(rescans > 0);
  });
});

describe("a file system that hangs", () => {
  it("a hung file system fails only the watches that would read it", NEEDS_FUSE, async () => {
    await using directory = await testDirectory();
    await using mount = await fuseMount("hanging_mount", directory.at("hung"));
    await using other = await startAgent();
    using its = clientOf(other);
    await using watch = await Watch.of(directory.path, { recursive: true }, its);
    const hung = await failureOf(its.files.watch(directory.at("hung")).next());
    assert.deepEqual([hung.reason, hung.metadata["mount"]], ["FILE_SYSTEM_HUNG", directory.at("hung")]);
    const across = await failureOf(its.files.watch(directory.path, { recursive: true, crossMounts: true }).next());
    assert.deepEqual([across.reason, across.metadata["mount"]], ["FILE_SYSTEM_HUNG", directory.at("hung")]);
    await mkdir(directory.at("sub"));
    await writeFile(directory.at("sub/file"), "");
    await watch.has("created sub/file");
    await mount[Symbol.asyncDispose]();
  });
});
