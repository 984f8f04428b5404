import assert from "node:assert/strict";
import { describe, it, test } from "node:test";
import { type Reason, SpawnError, type SpawnStep, type StatusName } from "../../../src/agent/domain/index.ts";
import { commandCandidates } from "../../../src/agent/session/command-start.ts";
import { startFailure } from "../../../src/agent/session/start-failure.ts";
import { resolveUser } from "../../../src/agent/session/users.ts";

const none = new Uint8Array();
const passwd = Buffer.from(`root:x:0:0:root:/root:/bin/sh
# a comment:x:7:7::/:/bin/sh
broken line
nouid:x::5::/:/bin/sh
badgid:x:6:six::/:/bin/sh
huge:x:4294967295:5::/:/bin/sh
+::::::
app:x:1000:1001:App:/home/app:/bin/bash
app:x:2000:2001:shadowed:/other:/bin/false
1000:x:5:6:a user with a number for a name:/five:/bin/sh
bare:x:1500:1501
relative:x:1600:1600::home:
`);
const group = Buffer.from(`root:x:0:
app:x:1001:
wheel:x:10:root,app
video:x:44:app
broken
twice:x:44:app
77:x:78:
`);

type Expected = readonly [
  uid: number,
  gid: number,
  groups: readonly number[],
  home: string,
  name?: string,
  shell?: string,
];

/** Users that are there, and what each gets. */
const KNOWN: Readonly<Record<string, Expected>> = {
  // Its entry's ids, home and shell, and its supplementary groups without repeats; "app:" is the user alone.
  app: [1000, 1001, [1001, 10, 44], "/home/app", "app", "/bin/bash"],
  "app:": [1000, 1001, [1001, 10, 44], "/home/app", "app", "/bin/bash"],
  // A number means an id, even where a user or a group has that number for a name.
  "1000": [1000, 1001, [1001, 10, 44], "/home/app", "app", "/bin/bash"],
  "app:77": [1000, 77, [77], "/home/app", "app", "/bin/bash"],
  // A named group replaces the user's groups.
  "app:wheel": [1000, 10, [10], "/home/app", "app", "/bin/bash"],
  "app:4711": [1000, 4711, [4711], "/home/app", "app", "/bin/bash"],
  // Without an entry: group 0, home / and neither name nor shell. The largest id is 2^31 - 1.
  "4242": [4242, 0, [0], "/"],
  "2147483647": [2_147_483_647, 0, [0], "/"],
  "5000:6000": [5000, 6000, [6000], "/"],
  // Entries without home or shell, or with a relative home.
  bare: [1500, 1501, [1501], "/", "bare"],
  relative: [1600, 1600, [1600], "/", "relative"],
};
const [BAD, UNKNOWN] = ["INVALID_ARGUMENT", "NOT_FOUND"];
const NO_NAME = /^user has no name before the colon/;

/** Users that are refused: with an empty name, which is never root; malformed; or of malformed lines and comments. */
const REFUSED: readonly (readonly [status: string | undefined, message: RegExp, ...specs: string[]])[] = [
  [BAD, NO_NAME, ":", ":0", ":wheel", "::"],
  [BAD, /./, "a:b:c", "-1", "0:-1", "2147483648", "0:2147483648", "99999999999999999999", "a\0b", "a\nb"],
  [
    UNKNOWN,
    /no user ".+" in \/etc\/passwd/,
    "broken line",
    "nouid",
    "badgid",
    "huge",
    "+",
    "# a comment",
    "nobody-here",
  ],
  [UNKNOWN, /no group "nope" in \/etc\/group/, "app:nope"],
];

describe("resolveUser", () => {
  for (const [spec, [uid, gid, groups, home, name, shell]] of Object.entries(KNOWN))
    test(`resolveUser accepts ${JSON.stringify(spec)}`, () => {
      assert.deepEqual(resolveUser(spec, passwd, group), { identity: { uid, gid, groups }, name, home, shell });
    });

  for (const [status, message, ...specs] of REFUSED)
    for (const spec of specs)
      test(`resolveUser rejects ${JSON.stringify(spec)}`, () => {
        assert.throws(() => resolveUser(spec, passwd, group), { status, reason: "EXEC_BAD_USER", message });
      });

  test("resolveUser without a user database accepts ids but no names", () => {
    assert.deepEqual(resolveUser("0", none, none).identity, { uid: 0, gid: 0, groups: [0] });
    assert.throws(() => resolveUser("root", none, none), { status: UNKNOWN, metadata: { user: "root" } });
  });

  test("resolveUser ignores non-UTF-8 lines and matches UTF-8 names bytewise", () => {
    const latin1 = Buffer.from("caf\xe9:x:50:50::/:\n", "latin1");
    const bytes = Buffer.concat([latin1, Buffer.from("café:x:51:51::/home/café:/bin/sh\n")]);
    const { identity, name, home } = resolveUser("café", bytes, Buffer.from("g:x:9:café\n"));
    assert.deepEqual([identity, name, home], [{ uid: 51, gid: 51, groups: [51, 9] }, "café", "/home/café"]);
  });
});

function candidates(command: string, ...environment: string[]): string[] {
  return commandCandidates(
    command,
    environment.map((entry) => Buffer.from(entry)),
  ).map((file) => Buffer.from(file).toString());
}

describe("looking up a command", () => {
  it("commandCandidates follows PATH order and returns a command with a slash unchanged", () => {
    assert.deepEqual(candidates("./x", "PATH=/a"), ["./x"]);
    assert.deepEqual(candidates("/bin/x"), ["/bin/x"]);
    assert.deepEqual(candidates("x", "PATH=/a:/b/"), ["/a/x", "/b//x"]);
    assert.deepEqual(candidates("x", "PATH=:/a:"), ["./x", "/a/x", "./x"]);
  });

  it("commandCandidates uses default directories if PATH is not set", () => {
    assert.ok(candidates("x", "A=1").includes("/usr/bin/x"));
  });

  it("commandCandidates keeps non-ASCII bytes unchanged", () => {
    const found = commandCandidates("ü", [Buffer.from([0x50, 0x41, 0x54, 0x48, 0x3d, 0x2f, 0xff])]);
    assert.deepEqual(
      found.map((file) => Buffer.from(file).toString("hex")),
      ["2fff2fc3bc"],
    );
  });
});

describe("startFailure", () => {
  const cases: readonly [SpawnStep, string, StatusName, Reason][] = [
    ["execve", "ENOTDIR", "NOT_FOUND", "EXEC_NOT_FOUND"],
    ["execve", "E2BIG", "RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG"],
    ["execve", "ETXTBSY", "FAILED_PRECONDITION", "EXEC_TEXT_BUSY"],
    ["execve", "EIO", "FAILED_PRECONDITION", "EXEC_SETUP_FAILED"],
    ["chdir", "EACCES", "PERMISSION_DENIED", "EXEC_BAD_CWD"],
    ["chdir", "ESTALE", "FAILED_PRECONDITION", "EXEC_BAD_CWD"],
    ["setuid", "EPERM", "PERMISSION_DENIED", "EXEC_BAD_USER"],
    ["clone", "EAGAIN", "RESOURCE_EXHAUSTED", "EXEC_RESOURCE_LIMIT"],
    ["prepare", "EMFILE", "RESOURCE_EXHAUSTED", "EXEC_RESOURCE_LIMIT"],
    ["terminal", "ENOENT", "FAILED_PRECONDITION", "EXEC_SETUP_FAILED"],
    ["killed", "ECANCELED", "CANCELLED", "CANCELLED"],
    ["ctty", "EPERM", "INTERNAL", "EXEC_SETUP_FAILED"],
  ];
  for (const [step, errno, status, reason] of cases) {
    it(`startFailure maps ${errno} from ${step} to ${status} ${reason}`, () => {
      const error = startFailure(new SpawnError(step, errno), { args: ["/bin/x"], env: new Map(), cwd: "/dir" });
      assert.deepEqual([error.status, error.reason], [status, reason]);
      assert.deepEqual(error.metadata, { step, errno, path: step === "chdir" ? "/dir" : "/bin/x" });
      assert.ok(error.message.includes(errno));
    });
  }
});
