import assert from "node:assert/strict";
import {
  chmod,
  chown,
  link,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { describe, it } from "node:test";
import { execa } from "execa";
import { testDirectory, testMount, tmpfsMount } from "../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { NEEDS_OPEN_CLONE, NEEDS_ROOT } from "../../fixtures/privileges.ts";
import {
  agentForAllTests,
  assertRefused,
  GUESTCTL_LINE,
  guestctlVariables,
  runGuestctl,
  startIssuedAgent,
} from "./guestctl.ts";

const { env } = await agentForAllTests();

const NOBODY = 65_534;
/** Starts the agent as nobody, who owns its credentials. */
const AS_NOBODY = [
  "sh",
  "-c",
  `chown -R ${NOBODY} "$(dirname "$SVC_TLS_CERT_FILE")"; exec setpriv --reuid=${NOBODY} --regid=${NOBODY} --clear-groups "$@"`,
  "sh",
];

describe("guestctl cp", () => {
  it("`cp` accepts non-UTF-8 names on both sides", async () => {
    await using directory = await testDirectory();
    // A shell makes the names: Node's own arguments are text.
    const script = `cd "$1" && n=$(printf 'caf\\351') && printf x > "$n" && mkdir up down "d$n" &&
      ${GUESTCTL_LINE} cp "$n" ":$1/up/" && ${GUESTCTL_LINE} cp ":$1/up/$n" "down/$n" &&
      ${GUESTCTL_LINE} cp "d$n" ":$1/up" && ${GUESTCTL_LINE} cp "$n" ":$1/up/d$n/" &&
      ${GUESTCTL_LINE} cp --exclude "caf$(printf '\\351')" ":$1/up" "down/all$n"`;
    const { stderr, exitCode } = await execa("sh", ["-c", script, "sh", directory.path], {
      env,
      extendEnv: false,
      reject: false,
    });
    assert.deepEqual([stderr, exitCode], ["", 0]);
    const names = await readdir(directory.path, { recursive: true, encoding: "buffer" });
    const found = names.map((name) => name.toString("latin1")).filter((name) => name.includes("/"));
    assert.deepEqual(found.toSorted(), [
      "down/allcaf\u00e9",
      "down/allcaf\u00e9/dcaf\u00e9",
      "down/caf\u00e9",
      "up/caf\u00e9",
      "up/dcaf\u00e9",
      "up/dcaf\u00e9/caf\u00e9",
    ]);
    const odd = `cd "$1" && n=$(printf 'a\\033b\\351') && printf x > "$n" && ${GUESTCTL_LINE} cp ":$1/$n" - | tar -xO &&
      ${GUESTCTL_LINE} cp ":$1/"'a\\x1bb\\xe9' - | tar -xO`;
    const archived = await execa("sh", ["-c", odd, "sh", directory.path], { env, extendEnv: false, reject: false });
    assert.deepEqual([archived.stderr, archived.stdout], ["", "xx"]);
    const missing = await execa("sh", ["-c", `${GUESTCTL_LINE} cp "/none$(printf '\\351')" :/tmp`], {
      env,
      extendEnv: false,
      reject: false,
    });
    assert.match(missing.stderr, /\/none\\xe9: no such file/);
  });

  it("for file times after year 9999, `cp` sets the nearest possible time", NEEDS_NAMESPACES, async () => {
    await using far = await testMount("tmpfs", () => "size=1m");
    await using directory = await testDirectory();
    await mkdir(far.at("tree"));
    for (const seconds of [300_000_000_000, 9_000_000_000_000, 2n ** 62n])
      await writeFile(far.at(`tree/${seconds}`), `${seconds}`);
    // ustar cannot represent this time, and GNU tar then uses base 256 in gnu and a header of its own in pax.
    const script = `cd "$1/tree" && for name in *; do touch -d "@$name" "$name"; done && touch -d @300000000000 . &&
      ${GUESTCTL_LINE} cp -a "$1/tree" ":$2/all" && ${GUESTCTL_LINE} cp -p 4611686018427387904 ":$2/single" &&
      mkdir "$2/pax" "$2/gnu" && tar cf - --format=pax . | ${GUESTCTL_LINE} cp - ":$2/pax" &&
      tar cf - --format=gnu . | ${GUESTCTL_LINE} cp - ":$2/gnu"`;
    const done = await execa("sh", ["-c", script, "sh", far.path, directory.path], {
      env,
      extendEnv: false,
      reject: false,
    });
    assert.deepEqual([done.stderr, done.exitCode], ["", 0]);
    for (const name of ["all", "pax", "gnu"])
      for (const file of await readdir(directory.at(name)))
        assert.equal(await readFile(directory.at(`${name}/${file}`), "utf8"), file);
    assert.deepEqual((await readdir(directory.at("all"))).length, 3);
    assert.equal(await readFile(directory.at("single"), "utf8"), "4611686018427387904");
    // The file system of the destination may have an earlier last time, such as 2446 on ext4.
    for (const path of ["all", "single", "all/300000000000"])
      assert.ok((await stat(directory.at(path))).mtime.getUTCFullYear() > 2100, path);
  });

  it("`cp` keeps owners with `-a` and sets them with `--chown`", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("src"));
    await writeFile(directory.at("src/a"), "x");
    await link(directory.at("src/a"), directory.at("src/b"));
    await chown(directory.at("src/a"), 1234, 5678);
    const owner = async (path: string): Promise<unknown[]> => {
      const { uid, gid, nlink } = await stat(directory.at(path));
      return [uid, gid, nlink];
    };
    const cp = async (...args: string[]): Promise<void> => {
      const { stderr, exitCode } = await runGuestctl(["cp", ...args], env);
      assert.deepEqual([stderr, exitCode], ["", 0]);
    };
    await cp("-a", directory.at("src"), `:${directory.at("up")}`);
    await cp("-a", `:${directory.at("up")}`, directory.at("down"));
    await cp("-a", directory.at("src/a"), `:${directory.at("one")}`);
    await cp(directory.at("src"), `:${directory.at("plain")}`);
    await cp("--chown", "daemon:", `:${directory.at("src")}`, directory.at("daemon"));
    await cp("--chown", "7:8", directory.at("src"), `:${directory.at("numbers")}`);
    assert.deepEqual(await Promise.all(["up/b", "down/b", "one", "plain/b", "daemon/b", "numbers/b"].map(owner)), [
      [1234, 5678, 2],
      [1234, 5678, 2],
      [1234, 5678, 1],
      [0, 0, 1],
      [1, 1, 1],
      [7, 8, 1],
    ]);
    assertRefused(
      await runGuestctl(["cp", "--chown", "no-such-user", directory.at("src"), `:${directory.at("x")}`], env),
      /\/etc\/passwd in the sandbox has no entry "no-such-user"; give a numeric id/,
    );
    assertRefused(
      await runGuestctl(["cp", "--chown", ":", "a", ":/b"], env),
      /--chown requires USER, USER:GROUP or :GROUP/,
    );
  });

  it("`cp -x` copies files with several names, also if one name is excluded", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("tree"));
    await writeFile(directory.at("tree/a"), "shared");
    for (const name of ["b", "c"]) await link(directory.at("tree/a"), directory.at(`tree/${name}`));
    for (const options of [[], ["--exclude", "a"], ["--exclude", "b"]]) {
      const names = ["a", "b", "c"].filter((name) => name !== options[1]);
      const copied = directory.at(`copied${names.join("")}`);
      const copy = await runGuestctl(["cp", "-x", ...options, `:${directory.at("tree")}`, copied], env);
      assert.deepEqual([copy.stderr, copy.exitCode], ["", 0]);
      const archive = await runGuestctl(["cp", "-x", ...options, `:${directory.at("tree")}`, "-"], env);
      assert.deepEqual([archive.stderr, archive.exitCode], ["", 0]);
      const unpacked = directory.at(`unpacked${names.join("")}`);
      await mkdir(unpacked);
      await execa("tar", ["xf", "-", "-C", unpacked, "--strip-components=1"], { input: archive.stdout });
      for (const place of [copied, unpacked]) {
        assert.deepEqual((await readdir(place)).toSorted(), names);
        for (const name of names) assert.equal(await readFile(`${place}/${name}`, "utf8"), "shared");
      }
    }
  });

  it("`cp` archives contain owners, hard links and exact times", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("src"));
    await writeFile(directory.at("src/a"), "x");
    await link(directory.at("src/a"), directory.at("src/b"));
    await chown(directory.at("src/a"), 1234, 5_678_901);
    await utimes(directory.at("src/a"), 1_577_836_800.25, 1_577_836_800.25);
    const script = `cd "$1" && mkdir out in plain && ${GUESTCTL_LINE} cp ":$1/src" - > tar && tar xpf tar -C out &&
      ${GUESTCTL_LINE} cp -a - ":$1/in" < tar && ${GUESTCTL_LINE} cp - ":$1/plain" < tar`;
    const { stderr, exitCode } = await execa("sh", ["-c", script, "sh", directory.path], {
      env,
      extendEnv: false,
      reject: false,
    });
    assert.deepEqual([stderr, exitCode], ["", 0]);
    for (const [root, uid, gid] of [
      ["out", 1234, 5_678_901],
      ["in", 1234, 5_678_901],
      ["plain", 0, 0],
    ] as const) {
      const stats = await stat(directory.at(`${root}/src/b`), { bigint: true });
      assert.deepEqual([Number(stats.uid), Number(stats.gid), Number(stats.nlink)], [uid, gid, 2], root);
      assert.equal(stats.mtimeNs, 1_577_836_800_250_000_000n, root);
    }
  });

  it("`cp` follows links with `-L` and keeps existing files with `-n`", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("src"));
    await writeFile(directory.at("src/a"), "new");
    await symlink("a", directory.at("src/link"));
    const cp = async (...args: string[]): Promise<unknown> => (await runGuestctl(["cp", ...args], env)).exitCode;
    assert.equal(await cp("-aL", directory.at("src"), `:${directory.at("up")}`), 0);
    assert.equal(await cp("-L", `:${directory.at("src")}`, directory.at("down")), 0);
    for (const side of ["up", "down"]) {
      assert.equal(
        (await stat(directory.at(`${side}/link`))).ino === (await stat(directory.at(`${side}/a`))).ino,
        false,
      );
      await writeFile(directory.at(`${side}/a`), "old");
    }
    assert.equal(await cp("-n", directory.at("src/a"), `:${directory.at("up")}`), 0);
    assert.equal(await cp("-n", `:${directory.at("src/a")}`, directory.at("down")), 0);
    assert.equal(await cp("-n", `${directory.at("src")}/.`, `:${directory.at("up")}`), 0);
    for (const side of ["up", "down"]) assert.equal(await readFile(directory.at(`${side}/a`), "utf8"), "old", side);
  });

  it("`cp -x` does not enter other file systems", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("src/mounted"), { recursive: true });
    await writeFile(directory.at("src/file"), "x");
    using _mount = tmpfsMount(directory.at("src/mounted"));
    await writeFile(directory.at("src/mounted/inner"), "x");
    for (const [name, args] of [
      ["up", [directory.at("src"), `:${directory.at("up")}`]],
      ["down", [`:${directory.at("src")}`, directory.at("down")]],
    ] as const) {
      assert.equal((await runGuestctl(["cp", "-x", ...args], env)).exitCode, 0);
      assert.deepEqual(
        (await readdir(directory.at(name), { recursive: true })).filter((each) => each !== "mounted"),
        ["file"],
      );
    }
  });
});

describe("guestctl cp -a to an agent without root", NEEDS_OPEN_CLONE, () => {
  it("`cp -a` to an unprivileged agent keeps everything except owners", async () => {
    await using directory = await testDirectory();
    await using agent = await startIssuedAgent({ through: AS_NOBODY });
    const variables = guestctlVariables(agent);
    const from = directory.at("from");
    await mkdir(`${from}/closed`, { recursive: true });
    await writeFile(`${from}/small`, "small", { mode: 0o640 });
    await writeFile(`${from}/large`, Buffer.alloc(200_000, "large"), { mode: 0o751 });
    await writeFile(`${from}/closed/file`, "file");
    await link(`${from}/small`, `${from}/second`);
    await symlink("small", `${from}/link`);
    for (const name of ["small", "closed"]) await chown(`${from}/${name}`, 1234, 5678);
    await chmod(`${from}/small`, 0o640);
    await chmod(`${from}/closed`, 0o550);
    for (const name of ["small", "large", "closed/file", "closed"]) await utimes(`${from}/${name}`, 1_000, 2_000.25);
    await chmod(directory.path, 0o755);
    await mkdir(directory.at("to"));
    await chown(directory.at("to"), NOBODY, NOBODY);
    for (const [source, target] of [
      [from, "to/tree"],
      [`${from}/small`, "to/alone"],
    ] as const) {
      const { stderr, exitCode } = await runGuestctl(["cp", "-a", source, `:${directory.at(target)}`], variables);
      assert.deepEqual([stderr, exitCode], ["", 0]);
    }
    for (const [source, target] of [
      ["small", "tree/small"],
      ["large", "tree/large"],
      ["closed", "tree/closed"],
      ["closed/file", "tree/closed/file"],
      ["small", "alone"],
    ] as const) {
      const [given, made] = [await stat(`${from}/${source}`), await stat(directory.at(`to/${target}`))];
      assert.deepEqual(
        [made.mode & 0o7777, made.mtimeMs, made.uid, made.gid],
        [given.mode & 0o7777, given.mtimeMs, NOBODY, NOBODY],
        target,
      );
    }
    assert.equal(await readlink(directory.at("to/tree/link")), "small");
    assert.equal((await stat(directory.at("to/tree/second"))).ino, (await stat(directory.at("to/tree/small"))).ino);
    // An owner that was asked for is not silently another.
    const asked = await runGuestctl(
      ["cp", "--chown", "1234", `${from}/small`, `:${directory.at("to/given")}`],
      variables,
    );
    assertRefused(asked, /EPERM|permission|not permitted/i, 1);
  });
});
