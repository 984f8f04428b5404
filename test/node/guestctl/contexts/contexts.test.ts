import assert from "node:assert/strict";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { execa } from "execa";
import { contextsPath } from "../../../../src/node/guestctl/contexts.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { type GuestctlResult, runGuestctl } from "../guestctl.ts";

describe("guestctl context", () => {
  let home: string;
  let path: string;
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), "guestctl-contexts-"));
    path = join(home, ".config/guestctl/contexts.json");
  });
  afterEach(() => rm(home, { recursive: true }));

  const context = (...args: readonly string[]): Promise<GuestctlResult> =>
    runGuestctl(["context", ...args], { PATH: "/usr/bin:/bin", HOME: home });

  async function done(...args: readonly string[]): Promise<string> {
    const { stdout, stderr, exitCode } = await context(...args);
    assert.deepEqual([stderr, exitCode], ["", 0]);
    return stdout;
  }

  async function complaint(...args: readonly string[]): Promise<string> {
    const { stdout, stderr, exitCode } = await context(...args);
    assert.deepEqual([stdout, exitCode], ["", 125]);
    return stderr;
  }

  test("sets, lists, uses and removes contexts", async () => {
    assert.equal(await done("list"), "");
    await done("set", "one", "-H", "10.0.0.7", "-c", "/creds/one", "--server-name", "box");
    await done("set", "second", "--bridge", "docker exec -i box guest-agent bridge", "-c", "/creds/two");
    assert.equal(
      await done("list"),
      "* one     10.0.0.7:7071  /creds/one\n  second  docker exec -i box guest-agent bridge  /creds/two\n",
    );
    await done("use", "second");
    assert.equal(await done("list", "--names"), "one\nsecond\n");
    assert.deepEqual(JSON.parse(await done("list", "--json")), {
      current: "second",
      contexts: {
        one: { address: "10.0.0.7:7071", credentials: "/creds/one", server_name: "box" },
        second: { bridge: "docker exec -i box guest-agent bridge", credentials: "/creds/two" },
      },
    });
    await done("remove", "second");
    assert.deepEqual(JSON.parse(await done("remove", "one", "--json")), { current: null, contexts: {} });
  });

  test("changes only what is given, of which nothing is empty, and makes paths absolute", async () => {
    await done("set", "box", "-H", "unix:guest.sock", "-c", "creds");
    const { contexts } = JSON.parse(await done("set", "box", "--server-name", "n", "--json")) as {
      contexts: Record<string, Record<string, string>>;
    };
    assert.deepEqual(contexts["box"], {
      address: `unix:${process.cwd()}/guest.sock`,
      credentials: `${process.cwd()}/creds`,
      server_name: "n",
    });
    await done("set", "box", "--server-name", "", "--address", "", "--credentials", "");
    assert.deepEqual(JSON.parse(await done("list", "--json")), { current: "box", contexts });
    await done("set", "box", "--bridge", "b");
    const text = await readFile(path, "utf8");
    assert.ok(!text.includes("guest.sock"), text);
  });

  test("keeps its file to its user, in one step, also where the file is a link", async () => {
    await done("set", "one", "-H", "x", "-c", "/c");
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal((await stat(join(home, ".config/guestctl"))).mode & 0o777, 0o700);
    await rm(path);
    await writeFile(join(home, "kept.json"), "{}", { mode: 0o600 });
    await symlink(join(home, "kept.json"), path);
    await done("set", "one", "-H", "x", "-c", "/c");
    assert.ok((await lstat(path)).isSymbolicLink());
    assert.match(await readFile(join(home, "kept.json"), "utf8"), /"one"/);
  });

  test("says what is wrong with a broken file, and touches it no further", async () => {
    await mkdir(join(home, ".config/guestctl"), { recursive: true });
    const of = (fields: object): string => JSON.stringify({ contexts: { box: { credentials: "/c", ...fields } } });
    for (const [text, problem] of [
      ["{oops", /is broken: .*JSON.*; correct it, or remove it/],
      ["[]", /is broken: the whole of it is no object/],
      ['{"context": {}}', /is broken: the whole of it has an unknown field "context"/],
      ['{"current": 1}', /is broken: current is no text/],
      ['{"contexts": {"box": {"address": "x"}}}', /is broken: contexts\.box\.credentials is missing/],
      [of({ adress: "x" }), /is broken: contexts\.box has an unknown field "adress"/],
      [of({ address: 7 }), /is broken: contexts\.box\.address is no text/],
      [of({}), /is broken: contexts\.box wants either address or bridge/],
      [of({ address: "x", bridge: "y" }), /is broken: contexts\.box wants either address or bridge/],
      [of({ address: "x", credentials: "c" }), /is broken: contexts\.box\.credentials is no absolute path/],
    ] as const) {
      await writeFile(path, text, { mode: 0o600 });
      assert.match(await complaint("set", "new", "-H", "x", "-c", "/c"), problem);
      assert.equal(await readFile(path, "utf8"), text);
    }
  });

  test("says why it cannot read or write its file, and leaves no other beside it", NEEDS_ROOT, async () => {
    const folder = join(home, ".config/guestctl");
    await mkdir(path, { recursive: true });
    assert.match(
      await complaint("list"),
      /^guestctl: cannot read \/.*contexts\.json \(EISDIR\); check its owner and mode\n$/,
    );
    await rm(path, { recursive: true });
    await done("set", "one", "-H", "x", "-c", "/c");
    // A file that is a mount point, as in containers, cannot be replaced.
    await execa("mount", ["--bind", path, path]);
    try {
      assert.match(await complaint("use", "one"), /^guestctl: cannot write \/.*contexts\.json \(EBUSY\)/);
      assert.deepEqual(await readdir(folder), ["contexts.json"]);
    } finally {
      await execa("umount", [path]);
    }
  });

  test("does not trust a file that others may write: a bridge is a command", async () => {
    await done("set", "one", "-H", "x", "-c", "/c");
    await chmod(path, 0o622);
    assert.match(await complaint("list"), /^guestctl: others may write \/.*; look at what it says, then: chmod 600 \//);
  });

  test("says what is wrong with a command line", async () => {
    await done("set", "one", "-H", "x", "-c", "/c");
    assert.match(await complaint(), /say what to do with contexts: list, use, set or remove/);
    assert.match(await complaint("drop", "one"), /say what to do with contexts/);
    assert.match(await complaint("constructor", "one"), /say what to do with contexts/);
    assert.match(await complaint("list", "one"), /context list takes no names/);
    assert.match(await complaint("use"), /context use wants one name/);
    assert.match(await complaint("use", "two"), /there is no context "two"; see "guestctl context list"/);
    assert.match(await complaint("remove", "two"), /there is no context "two"/);
    assert.match(await complaint("set", "a b", "-H", "x", "-c", "/c"), /a context's name is made of letters, digits/);
    assert.match(await complaint("set", "two", "-c", "/c"), /a new context wants --address or --bridge/);
    assert.match(await complaint("set", "two", "-H", "x"), /a new context wants --credentials/);
    assert.match(await complaint("set", "two", "-H", "x", "--bridge", "y"), /do not go together/);
  });

  test("are looked for where the user's configuration is", () => {
    assert.equal(contextsPath({ HOME: "/h" }), "/h/.config/guestctl/contexts.json");
    assert.equal(contextsPath({ HOME: "/h", XDG_CONFIG_HOME: "/x" }), "/x/guestctl/contexts.json");
    assert.equal(contextsPath({ HOME: "/h", XDG_CONFIG_HOME: "relative" }), "/h/.config/guestctl/contexts.json");
  });
});
