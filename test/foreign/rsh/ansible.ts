import assert from "node:assert/strict";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import type { Suite } from "../suite.ts";
import { Guest } from "./guest.ts";

/** Ansible's raw module through `guestctl rsh`, by the lines of the documentation. */
export const ANSIBLE: Suite = {
  name: "ansible",
  about: "guestctl rsh: the raw module",
  cases: 4,
  run: async () => {
    requirePrograms([{ name: "ansible", package: "ansible-core" }], "for Ansible");
    await using guest = await Guest.start();
    const [shim = "", settings = "", call = ""] = await guest.documented("Ansible");
    const before = `${shim}\n${settings}`;
    const raw = (line: string): string => call.replace("uname -s; exit 0", line);
    const cases = new Cases();
    await cases.check("runs a line, and shows its output", async () => {
      assert.match(await guest.shell(`${before}\n${call}`), /box \| CHANGED \| rc=0 >>\nLinux\r?\n/);
    });
    await cases.check("tells the status of a line that fails", async () => {
      await assert.rejects(guest.shell(`${before}\n${raw("echo why; exit 3")}`), /box \| FAILED \| rc=3 >>\nwhy/);
    });
    await cases.check("takes a line with every kind of quotes", async () => {
      const printed = await guest.shell(`${before}\n${raw(`printf "%s|" "a  b" "$((1+1))"`)}`);
      assert.match(printed, /a {2}b\|2\|/);
    });
    await cases.check("says UNREACHABLE of an agent that is not there", async () => {
      const nowhere = `export GUESTCTL_ADDRESS=127.0.0.1:1 ANSIBLE_SSH_RETRIES=0`;
      await assert.rejects(guest.shell(`${before}\n${nowhere}\n${call}`), /box \| UNREACHABLE!/);
    });
    return { version: await packageVersion("ansible-core"), cases: cases.count, failures: cases.failures };
  },
};
