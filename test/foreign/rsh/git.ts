import assert from "node:assert/strict";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import type { Suite } from "../suite.ts";
import { Guest } from "./guest.ts";

const PERSON = "git -c user.name=A -c user.email=a@example.invalid -c commit.gpgsign=false";

/** git through `guestctl rsh`, by the lines of the documentation. */
export const GIT: Suite = {
  name: "git",
  about: "guestctl rsh: clone, push, fetch",
  cases: 4,
  run: async () => {
    requirePrograms([{ name: "git", package: "git" }], "for git");
    await using guest = await Guest.start();
    const [through = "", clone = "", pullAndPush = ""] = await guest.documented("git");
    await guest.shell(
      `git init -q --bare -b main srv/project.git && git init -q -b main first && cd first && seq 100000 > numbers && git add . &&
      ${PERSON} commit -qm first && git push -q ../srv/project.git main`,
    );
    const cases = new Cases();
    await cases.check("clones a repository of the sandbox", async () => {
      await guest.shell(`${through}\n${clone}`);
      await guest.shell("cmp first/numbers project/numbers");
    });
    await cases.check("pushes what was committed here", async () => {
      await guest.shell(`cd project && echo more >> numbers && ${PERSON} commit -qam second`);
      await guest.shell(`${through}\n${pullAndPush}`);
      assert.equal(await guest.shell("git -C srv/project.git log -1 --format=%s main"), "second");
    });
    await cases.check("fetches what was committed there", async () => {
      await guest.shell(
        `git clone -q srv/project.git there && cd there && echo there > file && git add . && ${PERSON} commit -qm third && git push -q`,
      );
      await guest.shell(`${through}\ncd project && git fetch`);
      assert.equal(await guest.shell("git -C project log -1 --format=%s origin/main"), "third");
    });
    await cases.check("is told where there is no such repository", async () => {
      await assert.rejects(guest.shell(`${through}\n${clone.replaceAll("project", "absent")}`), /absent.git/);
    });
    return { version: await packageVersion("git"), cases: cases.count, failures: cases.failures };
  },
};
