import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../fixtures/files.ts";

const TOUR = join(import.meta.dirname, "../../scripts/tour.ts");

/**
 * The shell that the tour finds first in PATH. Before the line with a limit of one second it stops the agent, as if the
 * machine gave it no processor, and before the repetition it lets the agent run. The agent is the child of the
 * launcher, which is a child of the tour, as this shell is.
 */
const SHELL = `#!/bin/sh
children() { cat "/proc/$1/task/$1/children"; }
agent() {
  for child in $(children "$PPID"); do
    [ "$(cat "/proc/$child/comm")" != guest-agent ] || children "$child"
  done
}
case $2 in
  *"--timeout 1s"*) kill -STOP $(agent) ;;
  *"--timeout "*) kill -CONT $(agent) ;;
esac
exec /bin/sh "$@"
`;

describe("npm start", () => {
  it("npm start retries a timed-out step with a longer timeout", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("bin"));
    await writeFile(directory.at("bin/sh"), SHELL);
    await chmod(directory.at("bin/sh"), 0o755);
    const PATH = `${directory.at("bin")}:${process.env["PATH"] ?? ""}`;
    const { all, exitCode } = await execa(process.execPath, [TOUR], { env: { PATH }, all: true, reject: false });
    assert.equal(exitCode, 0, all);
    const [, refusal = "", repetition = ""] =
      /^ {3}\$ guestctl exec --timeout 1s .*\n([^]*?)^ {3}This machine is busy\. Again, with more time:\n([^]*?)\n\n/m.exec(
        all,
      ) ?? [];
    assert.match(refusal, /DEADLINE_EXCEEDED/, all);
    assert.match(repetition, /^ {3}\$ guestctl exec --timeout 2s [^]*exit code 124\n[^]*exit code 127$/, all);
    assert.match(all, /^Everything came back as it should\.$/m);
  });
});
