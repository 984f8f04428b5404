import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { testDirectory } from "../fixtures/files.ts";
import { bindInGuest, guestDirectories } from "../fixtures/guest-mounts.ts";
import { NEEDS_NAMESPACES } from "../fixtures/namespaces.ts";

const VOLUME = "/srv/guest-agent";

describe("mounts of a test's guest", NEEDS_NAMESPACES, () => {
  for (const clone of ["/opt/clone", "/srv/clone", "/srv/it's here/clone", VOLUME, "/srv", "/run/clone"]) {
    for (const isMount of [false, true]) {
      const what = isMount ? "that is a mount of its own" : "that is a plain directory";
      test(`guest mounts leave a clone in ${clone} visible ${what}`, async () => {
        await using source = await testDirectory();
        await using volume = await testDirectory();
        writeFileSync(source.at("package.json"), "");
        writeFileSync(volume.at("guest-agent"), "");
        // This machine's own /srv must not decide.
        const lines = `
for each in /srv /run /opt; do mount -t tmpfs tmpfs $each; echo host > $each/of-the-host; done
mkdir -p "$1"
${isMount ? 'mount --bind "$2" "$1"' : 'cp -r "$2/." "$1"'}
${guestDirectories([clone])}
${bindInGuest(volume.path, VOLUME, [clone])}
mkdir -p /run/guest
test -d /run/guest && test -e ${VOLUME}/guest-agent && test -e "$1/package.json" && ls -A /srv`;
        const names = execFileSync("unshare", ["--mount", "sh", "-ec", lines, "sh", clone, source.path], {
          encoding: "utf8",
        });
        if (!clone.startsWith("/srv")) assert.equal(names, "guest-agent\n");
      });
    }
  }
});
