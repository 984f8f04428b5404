import assert from "node:assert/strict";
import { test } from "node:test";
import { Changes } from "../../../../src/agent/files/entries/changes.ts";

test("while a directory's rescan is pending, changes below it are not recorded", () => {
  const changes = new Changes(() => true);
  changes.rescan("a");
  // While the client does not read, any number of paths can change here: memory for each would have no limit.
  changes.add("MODIFIED", "a/x", false);
  const covered = changes.hold("a/y", false);
  changes.complete(covered, undefined);
  // The client knows what moves, so the rescan no longer covers the directory, and changes are reported one by one.
  changes.complete(changes.hold("b", false), "a/z");
  changes.add("MODIFIED", "a/x", false);
  changes.add("REMOVED", "a/y", false);
  assert.deepEqual(
    changes.take().map(({ kind, path, newPath }) => [kind, path, newPath]),
    [
      ["RESCAN", "a", ""],
      ["MOVED", "b", "a/z"],
      ["MODIFIED", "a/x", ""],
      ["REMOVED", "a/y", ""],
    ],
  );
});
