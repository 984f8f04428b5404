import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { describe, test, type TestContext } from "node:test";

import { filesBelow, inspect } from "../../scripts/package/inspect.ts";
import { type Architecture, haveTool, toolFor } from "../../scripts/package/toolchain.ts";
import { standaloneFolder } from "../fixtures/standalone.ts";

const PROJECT_ROOT = join(import.meta.dirname, "..", "..");
const ARCHITECTURES: readonly Architecture[] = ["x64", "arm64"];
const OTHER: Readonly<Record<Architecture, Architecture>> = { x64: "arm64", arm64: "x64" };
const OWN: Architecture = process.arch === "arm64" ? "arm64" : "x64";

/** Why nothing is built for an architecture here; undefined: it is. */
function noCompiler(arch: Architecture): string | undefined {
  const gcc = toolFor(arch, "gcc");
  return haveTool(gcc) ? undefined : `needs ${gcc} (Debian: g++-${gcc.replace(/-gcc$/, "")})`;
}

describe("what is shipped", () => {
  for (const arch of ARCHITECTURES) {
    const skip = noCompiler(arch) ?? false;

    test(
      `for ${arch} passes its inspection: machine, libraries, stack, modes, no path of this machine`,
      { skip },
      () => {
        assert.deepEqual(inspect(arch, standaloneFolder(arch), [PROJECT_ROOT]), []);
      },
    );

    test(`for ${arch} is what its checksums say, nothing more and nothing less`, { skip }, () => {
      const folder = standaloneFolder(arch);
      const checked = execFileSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], {
        cwd: folder,
        encoding: "utf8",
      });
      assert.equal(checked.trim().split("\n").length, filesBelow(folder).length - 1);
    });

    test(`for ${arch} comes with the licence of every part and a bill of materials`, { skip }, () => {
      const folder = standaloneFolder(arch);
      const bill = JSON.parse(readFileSync(join(folder, "sbom.cdx.json"), "utf8")) as {
        readonly bomFormat: string;
        readonly components: readonly { readonly name: string; readonly purl: string }[];
      };
      assert.equal(bill.bomFormat, "CycloneDX");
      for (const { name, purl } of bill.components) {
        const place = purl.startsWith("pkg:deb/") ? join("debian", name) : name;
        assert.ok(existsSync(join(folder, "LICENSES", place)), `the licence of ${name} is shipped`);
      }
    });
  }

  test("for the two architectures is the same but for the machine", { skip: noCompiler(OTHER[OWN]) ?? false }, () => {
    const [x64 = [], arm64 = []] = ARCHITECTURES.map((arch) => {
      const folder = standaloneFolder(arch);
      const files = filesBelow(folder).map((file) => relative(folder, file).replace(/\/ld-linux[^/]*$/, "/ld-linux"));
      return files.filter((file) => !file.startsWith("LICENSES/")).toSorted();
    });
    assert.deepEqual(arm64, x64);
  });
});

describe("the inspection of what is shipped", () => {
  function makeFolder(t: TestContext): string {
    const folder = mkdtempSync(join(tmpdir(), "guest-agent-inspect-"));
    t.after(() => rmSync(folder, { recursive: true }));
    return folder;
  }

  function compile(folder: string, ...args: readonly string[]): void {
    const source = join(folder, "source.c");
    writeFileSync(source, "int main(void) { return 0; }\n");
    execFileSync("gcc", ["-o", join(folder, "program"), source, ...args]);
    rmSync(source);
  }

  test("finds an executable for another machine", (t) => {
    const folder = makeFolder(t);
    compile(folder, "-static");
    assert.deepEqual(inspect(OWN, folder, []), []);
    assert.deepEqual(inspect(OTHER[OWN], folder, []), [`program is not for ${OTHER[OWN]}`]);
  });

  test("finds a library that the image would have to bring", (t) => {
    const folder = makeFolder(t);
    compile(folder);
    assert.deepEqual(inspect(OWN, folder, []), ["program needs libc.so.6, which is not shipped"]);
  });

  test("finds an executable stack", (t) => {
    const folder = makeFolder(t);
    compile(folder, "-static", "-Wl,-z,execstack");
    assert.deepEqual(inspect(OWN, folder, []), ["program asks for an executable stack"]);
  });

  test("finds folders that libraries are looked for in", (t) => {
    const folder = makeFolder(t);
    compile(folder, "-Wl,-rpath,/somewhere", "-nostdlib", "-nostartfiles", "-shared");
    assert.deepEqual(inspect(OWN, folder, []), ["program names folders to look for libraries in"]);
  });

  test("finds files that others could write, and paths of the machine that built them", (t) => {
    const folder = makeFolder(t);
    compile(folder, "-static");
    writeFileSync(join(folder, "notes"), `built in ${folder}/build`);
    chmodSync(join(folder, "notes"), 0o664);
    assert.deepEqual(inspect(OWN, folder, [folder]), [
      "notes can be written by others than its owner",
      `notes holds the build machine's path ${folder}`,
    ]);
  });

  test("finds that there is nothing to ship", (t) => {
    assert.deepEqual(inspect(OWN, makeFolder(t), []), ["holds no executable at all"]);
  });
});
