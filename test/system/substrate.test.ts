import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../fixtures/files.ts";
import { bindInGuest, guestDirectories } from "../fixtures/guest-mounts.ts";
import { putGuestctl } from "../node/guestctl/guestctl.ts";
import { NEEDS_NAMESPACES } from "../fixtures/namespaces.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";

const ROOT = join(import.meta.dirname, "../..");
const document = readFileSync(join(ROOT, "docs/node/substrate.md"), "utf8").replaceAll(
  "-linux-x64",
  `-linux-${process.arch}`,
);

/** The blocks of a language in the document, in order. */
function blocks(language: string): string[] {
  return Array.from(
    document.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm")),
    ([, text = ""]) => text,
  );
}

interface CreateBody {
  readonly entrypoint: readonly string[];
  readonly cmd: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly volumes: readonly { volume_id: string; mount_path: string; readonly: boolean; overlay?: boolean }[];
}

const body = JSON.parse(blocks("json")[0] ?? "") as CreateBody;
/** Brings the loopback up: ip(8) is not in every Debian. The flags are IFF_UP and IFF_LOOPBACK (netdevice(7)). */
const LOOPBACK_UP = `mount -t sysfs sysfs /sys
echo 0x9 > /sys/class/net/lo/flags`;

/** Places where the substrate mounts nothing. */
const REFUSED = "bin boot dev etc lib lib64 proc root run sbin sys tmp usr var".split(" ").map((name) => `/${name}`);

const quoted = (words: readonly string[]): string => words.map((word) => `'${word}'`).join(" ");

/**
 * Does what the substrate does with the body, in namespaces of its own. It extracts the archives, mounts them as the
 * body says, and has a shell start the entrypoint. The document's commands come before that (the first block) and after
 * it.
 */
function script(archive: string, directory: string): string {
  const [credentials = "", ...rest] = blocks("sh");
  const [agentPath = "", credentialPath = ""] = body.volumes.map((volume) => volume.mount_path);
  const environment = quoted(Object.entries(body.env).map(([name, value]) => `${name}=${value}`));
  return `
set -eux
${LOOPBACK_UP}
${guestDirectories()}
${credentials}
mkdir volume
mount -t tmpfs tmpfs volume
mkdir volume/agent volume/lower volume/upper volume/work
tar -xzf '${archive}' -C volume/agent --no-same-owner
tar -xzf credentials.tar.gz -C volume/lower --no-same-owner
${bindInGuest(join(directory, "volume/agent"), agentPath)}
mount -o remount,bind,ro '${agentPath}'
mkdir -p '${credentialPath}'
mount -t overlay -o lowerdir=volume/lower,upperdir=volume/upper,workdir=volume/work overlay '${credentialPath}'
env -i PATH="$PATH" HOME=/root ${environment} \
  /bin/sh -c "cd '/' && exec ${quoted([...body.entrypoint, ...body.cmd])}" </dev/null >console 2>&1 &
agent=$!
trap 'cat console >&2; kill -KILL $agent' EXIT
until grep -q management_listening console; do kill -0 $agent; sleep 0.05; done
ADDRESS=127.0.0.1
until guestctl health --address "$ADDRESS:7071" --credentials ./creds; do kill -0 $agent; done
${rest.join("\n")}
kill -TERM $agent
status=0
wait $agent || status=$?
trap - EXIT
test $status = 143
`;
}

describe("docs/node/substrate.md", { timeout: 300_000 }, () => {
  test("the documented create request mounts its files and uses no refused path", () => {
    const places = body.volumes.map((volume) => volume.mount_path);
    for (const place of places) {
      assert.ok(!REFUSED.some((refused) => place === refused || place.startsWith(`${refused}/`)), place);
    }
    const files = Object.entries(body.env).flatMap(([name, value]) => (name.endsWith("_FILE") ? [value] : []));
    for (const file of [...body.entrypoint, ...files]) {
      assert.ok(
        places.some((place) => file.startsWith(`${place}/`)),
        file,
      );
    }
  });

  test("the documented create request puts no secret into the instance's environment", () => {
    for (const name of ["SVC_INSTANCE_TOKEN", "SVC_PROCESS_SPEC", "SVC_HOOKS_SPEC"]) {
      assert.ok(!(name in body.env) && `${name}_FILE` in body.env, name);
    }
  });

  test("the documented substrate example works: archives, create request and commands", NEEDS_NAMESPACES, async () => {
    const built = standaloneDirectory();
    const [archive = ""] = globSync(join(dirname(built), `guest-agent-*-linux-${process.arch}.tar.gz`));
    const members = execFileSync("tar", ["-tzvf", archive], { encoding: "utf8" }).trim().split("\n");
    assert.ok(
      members.every((line) => /^[-d]/.test(line) && !/ \/|\.\.\//.test(line)),
      "no link, relative paths",
    );

    await using directory = await testDirectory();
    await putGuestctl(directory.path);
    const namespaces = ["--mount", "--net", "--propagation", "private"];
    const { exitCode, stdout, stderr } = await execa(
      "unshare",
      [...namespaces, "bash", "-c", script(archive, directory.path)],
      {
        cwd: directory.path,
        env: { PATH: `${directory.path}:${process.env["PATH"] ?? ""}` },
        extendEnv: false,
        reject: false,
      },
    );
    assert.equal(exitCode, 0, `${stdout}\n${stderr}`);
    assert.match(stdout, /^POST_RESTORE: +exit 0$/m);
  });
});
