import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempDisposableSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { describe, test, type TestContext } from "node:test";

import { filesBelow, inspect } from "../../scripts/package/inspect.ts";
import { type Architecture, haveTool, toolFor } from "../../scripts/package/toolchain.ts";
import { writeElfFile } from "../fixtures/elf-file.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";

const PROJECT_ROOT = join(import.meta.dirname, "..", "..");
const ARCHITECTURES: readonly Architecture[] = ["x64", "arm64"];
const OTHER: Readonly<Record<Architecture, Architecture>> = { x64: "arm64", arm64: "x64" };
const OWN: Architecture = process.arch === "arm64" ? "arm64" : "x64";

/** Pages to give back, by a rule that forgets that two segments can share a page. */
const ROUNDS_UP = `
#include "${join(PROJECT_ROOT, "src/agent/native/addon/code_pages.h")}"
struct page_range code_pages(const ElfW(Phdr) *segments, size_t count, size_t index, uintptr_t page_bytes) {
  const ElfW(Phdr) *segment = &segments[index];
  if (count == 0 || segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) return (struct page_range){0, 0};
  uintptr_t end = (segment->p_vaddr + segment->p_memsz + page_bytes - 1) & ~(page_bytes - 1);
  return (struct page_range){segment->p_vaddr & ~(page_bytes - 1), end};
}
`;

/** Why nothing is built for an architecture here; undefined: it is. */
function noCompiler(arch: Architecture): string | undefined {
  const gcc = toolFor(arch, "gcc");
  return haveTool(gcc) ? undefined : `needs ${gcc} (Debian: g++-${gcc.replace(/-gcc$/, "")})`;
}

describe("the shipped bundle", () => {
  for (const arch of ARCHITECTURES) {
    const skip = noCompiler(arch) ?? false;

    test(`the ${arch} bundle passes inspection: machine, libraries, stack, modes and paths`, { skip }, () => {
      assert.deepEqual(inspect(arch, standaloneDirectory(arch), [PROJECT_ROOT]), []);
    });

    test(`the checksums of the ${arch} bundle cover exactly its files`, { skip }, () => {
      const directory = standaloneDirectory(arch);
      const checked = execFileSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], {
        cwd: directory,
        encoding: "utf8",
      });
      assert.equal(checked.trim().split("\n").length, filesBelow(directory).length - 1);
    });

    test(`the ${arch} bundle includes a bill of materials and every part's licence`, { skip }, () => {
      const directory = standaloneDirectory(arch);
      const bill = JSON.parse(readFileSync(join(directory, "sbom.cdx.json"), "utf8")) as {
        readonly bomFormat: string;
        readonly components: readonly { readonly name: string; readonly purl: string }[];
      };
      assert.equal(bill.bomFormat, "CycloneDX");
      for (const { name, purl } of bill.components) {
        const place = purl.startsWith("pkg:deb/") ? join("debian", name) : name;
        assert.ok(existsSync(join(directory, "LICENSES", place)), `the licence of ${name} is shipped`);
      }
    });
  }

  test("the bundles of the two architectures have the same files", { skip: noCompiler(OTHER[OWN]) ?? false }, () => {
    const [x64 = [], arm64 = []] = ARCHITECTURES.map((arch) => {
      const directory = standaloneDirectory(arch);
      const files = filesBelow(directory).map((file) =>
        relative(directory, file).replace(/\/ld-linux[^/]*$/, "/ld-linux"),
      );
      return files.filter((file) => !file.startsWith("LICENSES/")).toSorted();
    });
    assert.deepEqual(arm64, x64);
  });
});

describe("the inspection of the bundle", () => {
  function makeDirectory(t: TestContext): string {
    const directory = mkdtempDisposableSync(join(tmpdir(), "guest-agent-inspect-"));
    t.after(() => directory.remove());
    return directory.path;
  }

  function compile(directory: string, ...args: readonly string[]): void {
    const source = join(directory, "source.c");
    writeFileSync(source, "int main(void) { return 0; }\n");
    execFileSync("gcc", ["-o", join(directory, "program"), source, ...args]);
    rmSync(source);
  }

  for (const [fault, args, found, arch = OWN] of [
    ["an executable for another machine", ["-static"], `is not for ${OTHER[OWN]}`, OTHER[OWN]],
    ["a library that is not shipped", [], "needs libc.so.6, which is not shipped"],
    ["an executable stack", ["-static", "-Wl,-z,execstack"], "asks for an executable stack"],
    [
      "a library search path",
      ["-Wl,-rpath,/somewhere", "-nostdlib", "-nostartfiles", "-shared"],
      "names directories to look for libraries in",
    ],
  ] as const) {
    test(`the release inspection reports ${fault}`, (t) => {
      const directory = makeDirectory(t);
      compile(directory, ...args);
      assert.deepEqual(inspect(arch, directory, []), [`program ${found}`]);
    });
  }

  test("the release inspection rejects writable ELF segments that the agent's madvise would discard", (t) => {
    const directory = makeDirectory(t);
    const rule = join(makeDirectory(t), "round-up.c");
    writeElfFile(join(directory, "program"), [
      { flags: "R", start: 0x31d_0000, end: 0x707_d1f0 },
      { flags: "RW", start: 0x707_d1f0, end: 0x713_c600 },
    ]);
    assert.deepEqual(inspect("x64", directory, []), []);
    writeFileSync(rule, ROUNDS_UP);
    const fault = "has a writable segment in 0x31d0000 to 0x707e000, which the agent would give back";
    assert.deepEqual(inspect("x64", directory, [], rule), [`program ${fault} where pages have 4096 bytes`]);
  });

  test("the release inspection reports relocations in a library's code", (t) => {
    const directory = makeDirectory(t);
    const source = join(makeDirectory(t), "source.c");
    writeFileSync(source, 'int variable;\n__asm__(".text\\n.balign 8\\n.quad variable");\n');
    const flags = ["-shared", "-nostdlib", "-Wl,-z,notext"];
    execFileSync("gcc", [...flags, "-o", join(directory, "library"), source], { stdio: "ignore" });
    assert.deepEqual(inspect(OWN, directory, []), ["library has relocations in code, which the agent would give back"]);
  });

  test("the release inspection reports group-writable files and the build machine's paths", (t) => {
    const directory = makeDirectory(t);
    compile(directory, "-static");
    assert.deepEqual(inspect(OWN, directory, []), []);
    writeFileSync(join(directory, "notes"), `built in ${directory}/build`);
    chmodSync(join(directory, "notes"), 0o664);
    assert.deepEqual(inspect(OWN, directory, [directory]), [
      "notes can be written by others than its owner",
      `notes holds the build machine's path ${directory}`,
    ]);
  });

  test("the release inspection reports a bundle without an executable", (t) => {
    assert.deepEqual(inspect(OWN, makeDirectory(t), []), ["holds no executable at all"]);
  });
});
