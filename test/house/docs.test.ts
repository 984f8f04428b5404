import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { generatedDocuments } from "../../scripts/documents/generated.ts";
import { BOOTSTRAP_VARIABLES } from "../../src/agent/config/index.ts";
import { SANDBOX_NEXT_STEPS } from "../../src/node/sandboxes/substrate/errors.ts";
import { pictures } from "../vm/recording/two-forks.ts";

const root = join(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(join(root, path), "utf8");

const OPERATIONS = "docs/agent/operations.md";
const documents = globSync(["*.md", "docs/**/*.md", "compat/*.md"], { cwd: root }).toSorted();

/** The first group of each match. */
function every(text: string, pattern: RegExp): string[] {
  return Array.from(text.matchAll(pattern), ([, group = ""]) => group);
}

/** Names in the first column of the table under a heading. */
function namesUnder(path: string, heading: string): string[] {
  const section = read(path).split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  return every(section, /^\| (`[^|]+) \|/gm).flatMap((cell) => every(cell, /`([^`]+)`/g));
}

/** The anchors of a document's headings on its page. */
function anchorsOf(path: string): string[] {
  return every(read(path), /^#+ (.+)$/gm).map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

function brokenLinks(path: string): string[] {
  return every(read(path), /\]\((?!https?:)([^)\s]+)\)/g).filter((link) => {
    const [file = "", anchor] = link.split("#");
    const target = file === "" ? path : join(dirname(path), file);
    if (!existsSync(join(root, target))) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
}

/** Events that the sources write to the log. */
function loggedEvents(): string[] {
  const sources = globSync("src/**/*.ts", { cwd: root, exclude: ["src/shared/gen/**", "src/node/guestctl/**"] }).map(
    read,
  );
  const calls = sources.flatMap((text) =>
    every(text, /(?:\.(?:debug|info|warn|error)|log\[[^\]]+\])\(\s*"([a-z_]+)"/g),
  );
  const refusals = every(read("src/agent/listening/connections.ts"), /"(connection_[a-z]+)"/g);
  const launcher = every(read("src/agent/native/launcher/trace.c"), /say\("([a-z_]+)"/g);
  return [...new Set([...calls, ...refusals, ...launcher])];
}

test("the SVG of the two-forks recording matches its text file", () => {
  const { is, due } = pictures();
  assert.equal(is, due, "RECORD_TWO_FORKS=1 npm run test:vm -- test/vm/two-forks.vm.ts draws it again");
});

describe("the documents", () => {
  test("npm install commands in documents name only known packages or the client's tarball", () => {
    const { version, dependencies, devDependencies } = JSON.parse(read("package.json")) as Record<
      "dependencies" | "devDependencies",
      object
    > & { readonly version: string };
    const known = new Set([
      ...Object.keys({ ...dependencies, ...devDependencies }),
      `./guest-agent-client-${version}.tgz`,
      // Node itself, as a package.
      "--global",
      "node@22",
    ]);
    const named = documents
      .flatMap((path) => every(read(path), /^(?:npm install|npm i) (.+?)(?: +#.*)?$/gm))
      .flatMap((names) => names.split(" "));
    assert.ok(named.length > 0);
    assert.deepEqual(
      named.filter((name) => !known.has(name)),
      [],
    );
  });

  test("the search for documents finds more than ten files", () => assert.ok(documents.length > 10, documents.join()));

  for (const path of documents) {
    test(`the document ${path} has no broken link`, () => assert.deepEqual(brokenLinks(path), []));
  }

  test("documents name only npm scripts that package.json has", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    for (const path of documents.filter((name) => name !== "THIRD_PARTY_LICENSES.md")) {
      for (const script of every(read(path), /\bnpm (?:run )?((?<=run )[a-z:]+|start\b|test\b)/g))
        assert.ok(script in scripts, `${path} names npm run ${script}`);
    }
  });

  const [reasons = ""] = /export type Reason =[^;]+;/.exec(read("src/agent/domain/errors.ts")) ?? [];
  const LISTS: readonly (readonly [what: string, listed: readonly string[], are: readonly string[]])[] = [
    ["the variables of the bootstrap channel", namesUnder(OPERATIONS, "Variables"), BOOTSTRAP_VARIABLES],
    ["the reasons of errors", namesUnder(OPERATIONS, "Error reasons"), every(reasons, /"([A-Z_]+)"/g)],
    ["the codes of sandboxes", namesUnder("docs/node/sandboxes.md", "Codes"), Object.keys(SANDBOX_NEXT_STEPS)],
    ["the events of the log", namesUnder(OPERATIONS, "Log"), loggedEvents()],
  ];
  for (const [what, listed, are] of LISTS)
    test(`the documents list ${what} exactly`, () => {
      assert.ok(are.length > 10);
      assert.deepEqual(listed.toSorted(), are.toSorted());
    });

  test("snapshots.md explains each value of `degraded` and what to do", () => {
    const [, union = ""] = read("src/agent/restore/report.ts").split("export type DegradedToken");
    const tokens = every(union, /^ {2}\| ["`](.+)["`];?$/gm).map((token) => token.replace("${Errno}", "ERRNO"));
    const section = /^## degraded$[^]*?(?=^## )/m.exec(read("docs/agent/snapshots.md"))?.[0] ?? "";
    const rows = every(section, /^\| `([^`]+)` \| (?:.+) \| (?:.+) \|$/gm);
    assert.ok(tokens.length >= 12);
    assert.deepEqual(rows.toSorted(), tokens.toSorted());
  });

  test("CONTRIBUTING.md gives a reason for every package in package.json", () => {
    const manifest = JSON.parse(read("package.json")) as Record<string, object>;
    const kinds = ["dependencies", "devDependencies", "optionalDependencies"];
    const packages = kinds.flatMap((kind) => Object.keys(manifest[kind] ?? {}));
    assert.deepEqual(namesUnder("CONTRIBUTING.md", "Dependencies").toSorted(), packages.toSorted());
  });

  test("generated tables in documents match the output of npm run documents", () => {
    for (const [file, text] of generatedDocuments())
      assert.equal(readFileSync(file, "utf8"), text, `${file}: npm run documents`);
  });
});
