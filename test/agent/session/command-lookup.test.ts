import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { commandCandidates } from "../../../src/agent/session/command-start.ts";

function candidates(command: string, ...environment: string[]): string[] {
  return commandCandidates(
    command,
    environment.map((entry) => Buffer.from(entry)),
  ).map((file) => Buffer.from(file).toString());
}

describe("looking a command up", () => {
  it("takes a command with a slash as it is, and goes through PATH in its order, empty entries for the working directory", () => {
    assert.deepEqual(candidates("./x", "PATH=/a"), ["./x"]);
    assert.deepEqual(candidates("/bin/x"), ["/bin/x"]);
    assert.deepEqual(candidates("x", "PATH=/a:/b/"), ["/a/x", "/b//x"]);
    assert.deepEqual(candidates("x", "PATH=:/a:"), ["./x", "/a/x", "./x"]);
  });

  it("uses the usual folders where PATH is not set", () => {
    assert.ok(candidates("x", "A=1").includes("/usr/bin/x"));
  });

  it("keeps folders and names that are not plain ASCII byte for byte", () => {
    const found = commandCandidates("ü", [Buffer.from([0x50, 0x41, 0x54, 0x48, 0x3d, 0x2f, 0xff])]);
    assert.deepEqual(
      found.map((file) => Buffer.from(file).toString("hex")),
      ["2fff2fc3bc"],
    );
  });
});
