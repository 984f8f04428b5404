import { existsSync, readdirSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { missingPrograms } from "../../machine/programs.ts";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import { Guest } from "../rsh/guest.ts";
import { type Suite, Unavailable } from "../suite.ts";
import { LEFT_OUT, TESTS } from "./tests.ts";

const REGRESS = "/usr/lib/openssh/regress";
const SHIM = join(import.meta.dirname, "ssh-shim.sh");
const PROGRAMS = [
  { name: "../lib/openssh/regress/run-tests", package: "openssh-tests" },
  { name: "sshd", package: "openssh-server" },
  { name: "ssh", package: "openssh-client" },
];
/** sshd(8) needs it even to check a configuration. */
const PRIVILEGE_SEPARATION = "/run/sshd";

/** Those tests of OpenSSH's own that are about what `guestctl rsh` does, with a shim for ssh. */
export const OPENSSH: Suite = {
  name: "openssh",
  about: "guestctl rsh: OpenSSH's regress tests of status, output, pipes and transfers",
  cases: TESTS.length + 1,
  differences: {},
  run: async () => {
    // On a machine with an init an installation would open OpenSSH's port to the world.
    if (existsSync("/run/systemd/system") && missingPrograms(PROGRAMS).length > 0)
      throw new Unavailable("needs Debian's openssh-tests, which also installs a server: install it yourself");
    requirePrograms(PROGRAMS, "for OpenSSH's regress suite");
    if (process.getuid?.() === 0) await mkdir(PRIVILEGE_SEPARATION, { recursive: true });
    if (!existsSync(PRIVILEGE_SEPARATION)) throw new Unavailable(`needs the folder ${PRIVILEGE_SEPARATION}`);
    await using guest = await Guest.start();
    await guest.shell(`cp -a ${REGRESS} regress`);
    const cases = new Cases();
    await cases.check("every test of the suite is run or left out for a reason", () => {
      const all = readdirSync(REGRESS).filter((name) => name.endsWith(".sh") && !HELPERS.has(name));
      const unknown = all
        .map((name) => name.slice(0, -3))
        .filter((name) => !TESTS.includes(name) && !LEFT_OUT.has(name));
      if (unknown.length > 0) throw new Error(`neither: ${unknown.join(", ")}`);
    });
    for (const test of TESTS) {
      await cases.check(test, async () => {
        await guest.shell(
          `cd regress && TEST_SHELL=sh TEST_SSH_UNSAFE_PERMISSIONS=1 BUILDDIR=$PWD TEST_SSH_SSH=${SHIM} sh ./test-exec.sh $PWD $PWD/${test}.sh`,
        );
      });
    }
    return { version: await packageVersion("openssh-tests"), cases: cases.count, failures: cases.failures };
  },
};

/** Programs of the suite's tests. */
const HELPERS = new Set([
  "scp-ssh-wrapper.sh",
  "ssh2putty.sh",
  "sshd-log-wrapper.sh",
  "test-exec.sh",
  "valgrind-unit.sh",
]);
