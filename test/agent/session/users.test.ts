import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { resolveUser } from "../../../src/agent/session/users.ts";

const none = new Uint8Array();
const passwd = Buffer.from(
  [
    "root:x:0:0:root:/root:/bin/sh",
    "# a comment:x:7:7::/:/bin/sh",
    "broken line",
    "nouid:x::5::/:/bin/sh",
    "badgid:x:6:six::/:/bin/sh",
    "huge:x:4294967295:5::/:/bin/sh",
    "+::::::",
    "app:x:1000:1001:App:/home/app:/bin/bash",
    "app:x:2000:2001:shadowed:/other:/bin/false",
    "1000:x:5:6:a user with a number for a name:/five:/bin/sh",
    "bare:x:1500:1501",
    "relative:x:1600:1600::home:",
    "",
  ].join("\n"),
);
const group = Buffer.from(
  [
    "root:x:0:",
    "app:x:1001:",
    "wheel:x:10:root,app",
    "video:x:44:app",
    "broken",
    "twice:x:44:app",
    "77:x:78:",
    "",
  ].join("\n"),
);

function refusal(spec: string, users: Uint8Array = passwd, groups: Uint8Array = group): AgentError {
  try {
    resolveUser(spec, users, groups);
  } catch (error) {
    assert.ok(error instanceof AgentError);
    return error;
  }
  return assert.fail(`${JSON.stringify(spec)} was accepted`);
}

describe("resolveUser", () => {
  test("a name gets its entry's ids, home and shell, and its supplementary groups without repeats", () => {
    assert.deepEqual(resolveUser("app", passwd, group), {
      identity: { uid: 1000, gid: 1001, groups: [1001, 10, 44] },
      name: "app",
      home: "/home/app",
      shell: "/bin/bash",
    });
  });

  test("a number means an id even where a user has that number for a name", () => {
    assert.equal(resolveUser("1000", passwd, group).name, "app");
  });

  test("a user id without an entry has group 0, home / and no name or shell", () => {
    assert.deepEqual(resolveUser("4242", passwd, group), {
      identity: { uid: 4242, gid: 0, groups: [0] },
      name: undefined,
      home: "/",
      shell: undefined,
    });
  });

  test("a named group replaces the user's groups, supplementary ones included", () => {
    assert.deepEqual(resolveUser("app:wheel", passwd, group).identity, { uid: 1000, gid: 10, groups: [10] });
    assert.deepEqual(resolveUser("app:4711", passwd, group).identity, { uid: 1000, gid: 4711, groups: [4711] });
    assert.deepEqual(resolveUser("5000:6000", none, none).identity, { uid: 5000, gid: 6000, groups: [6000] });
  });

  test("a number for a group means an id even where a group has that number for a name", () => {
    assert.equal(resolveUser("app:77", passwd, group).identity.gid, 77);
  });

  test("user: is the user alone", () => {
    assert.deepEqual(resolveUser("app:", passwd, group), resolveUser("app", passwd, group));
  });

  test("an empty user is refused and never root, whatever group follows", () => {
    for (const spec of [":", ":0", ":wheel", "::"]) {
      const error = refusal(spec);
      assert.deepEqual([error.status, error.reason], ["INVALID_ARGUMENT", "EXEC_BAD_USER"], JSON.stringify(spec));
      assert.match(error.message, /^user has no name before its colon/);
    }
  });

  test("entries without home or shell, or with a relative home, get / and no shell", () => {
    assert.deepEqual(resolveUser("bare", passwd, group), {
      identity: { uid: 1500, gid: 1501, groups: [1501] },
      name: "bare",
      home: "/",
      shell: undefined,
    });
    assert.equal(resolveUser("relative", passwd, group).home, "/");
  });

  test("malformed lines and comments name nobody", () => {
    for (const name of ["broken line", "nouid", "badgid", "huge", "+", "# a comment"]) {
      assert.equal(refusal(name).status, "NOT_FOUND", name);
    }
  });

  test("ids work without any user database, names do not", () => {
    assert.deepEqual(resolveUser("0", none, none).identity, { uid: 0, gid: 0, groups: [0] });
    assert.equal(refusal("root", none, none).status, "NOT_FOUND");
  });

  test("a file that is not UTF-8 does not disturb its other lines, and UTF-8 names match byte for byte", () => {
    const bytes = Buffer.concat([
      Buffer.from("caf\xe9:x:50:50::/:\n", "latin1"),
      Buffer.from("café:x:51:51::/home/café:/bin/sh\n"),
    ]);
    const user = resolveUser("café", bytes, Buffer.from("g:x:9:café\n"));
    assert.deepEqual(user.identity, { uid: 51, gid: 51, groups: [51, 9] });
    assert.equal(user.name, "café");
    assert.equal(user.home, "/home/café");
  });

  test("unknown names are NOT_FOUND and say which file lacks them", () => {
    const user = refusal("nobody-here");
    assert.deepEqual(
      [user.status, user.reason, user.metadata],
      ["NOT_FOUND", "EXEC_BAD_USER", { user: "nobody-here" }],
    );
    assert.match(user.message, /no user "nobody-here" in \/etc\/passwd/);
    const unknownGroup = refusal("app:nope");
    assert.deepEqual([unknownGroup.status, unknownGroup.metadata], ["NOT_FOUND", { group: "nope" }]);
    assert.match(unknownGroup.message, /no group "nope" in \/etc\/group/);
  });

  test("malformed specs are INVALID_ARGUMENT", () => {
    for (const spec of ["a:b:c", "-1", "0:-1", "2147483648", "0:2147483648", "99999999999999999999", "a\0b", "a\nb"]) {
      const error = refusal(spec);
      assert.deepEqual([error.status, error.reason], ["INVALID_ARGUMENT", "EXEC_BAD_USER"], JSON.stringify(spec));
    }
  });

  test("the largest id is 2^31 - 1", () => {
    assert.equal(resolveUser("2147483647", passwd, group).identity.uid, 2147483647);
  });
});
