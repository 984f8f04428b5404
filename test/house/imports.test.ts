import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parseModule, readModules, type Module } from "./imports/modules.ts";
import { RULES } from "./imports/rules.ts";

const modules = readModules(join(import.meta.dirname, "../.."));

function offences(title: string, files: Readonly<Record<string, string>>): string[] {
  const rule = RULES.get(title);
  assert.ok(rule, `no rule is called "${title}"`);
  return rule(Object.entries(files).map(([path, text]) => parseModule(path, text)));
}

/** Files that break each rule, and the offence that has to be seen. A rule that cannot fail would hold nothing. */
const BROKEN: Readonly<Record<string, readonly [files: Readonly<Record<string, string>>, offence: RegExp]>> = {
  "every folder of src is a room of the house": [{ "src/utils/text.ts": "" }, /src\/utils is no room/],
  "imports lead down the floors, and only boot imports config and platform": [
    { "src/rpc/call.ts": 'import type { Settings } from "../config/index.ts";' },
    /rpc may not enter config/,
  ],
  "a room is entered through its index.ts": [
    { "src/rpc/call.ts": 'import { run } from "../exec/exec.ts";' },
    /must enter src\/exec through its index\.ts/,
  ],
  "every room has an index.ts, and no folder in it has one": [
    { "src/exec/a.ts": "", "src/exec/frames/index.ts": "" },
    /src\/exec has no index\.ts[^]*src\/exec\/frames\/index\.ts is a door inside a room/,
  ],
  "only the rooms of the wire see protobuf, gRPC and HTTP/2": [
    { "src/exec/exec.ts": 'import type { Message } from "@bufbuild/protobuf";' },
    /must not see the wire/,
  ],
  "the domain imports nothing but the domain": [
    { "src/domain/clock.ts": 'import { hrtime } from "node:process";' },
    /must be pure: it imports node:process/,
  ],
  "every imported file is there": [{ "src/main.ts": 'import "./boot.ts";' }, /src\/boot\.ts, which is not there/],
  "every import can be followed": [{ "src/boot.ts": "await import(name);" }, /nobody can follow/],
  "no imports in a circle": [
    {
      "src/exec/a.ts": 'export type { B } from "./b.ts";',
      "src/exec/b.ts": 'const lazy = () => import("./c.ts");',
      "src/exec/c.ts": 'import { a } from "./a.ts";',
    },
    /cycle: src\/exec\/a\.ts → src\/exec\/b\.ts → src\/exec\/c\.ts → src\/exec\/a\.ts/,
  ],
  "no using in a loop": [
    { "src/cli/a.ts": "function f() {\n  for (;;) {\n    try {\n      using client = dial();\n    } catch {}\n  }\n}" },
    /src\/cli\/a\.ts:4 has using in a loop/,
  ],
  "no file is longer than 400 lines": [{ "src/exec/exec.ts": "\n".repeat(401) }, /has 401 lines/],
};

describe("the modules of src", () => {
  test("are found, and so are their imports", () => {
    assert.ok(modules.length > 50, `found ${modules.length} modules`);
    const imports = modules.flatMap(({ files }) => files);
    assert.ok(imports.length > modules.length, `found ${imports.length} imports in ${modules.length} modules`);
    assert.ok(modules.some(({ packages }) => packages.includes("node:tls")));
  });

  for (const [title, rule] of RULES) {
    test(`keep the rule: ${title}`, () => assert.deepEqual(rule(modules), []));
  }
});

describe("the rules", () => {
  for (const title of RULES.keys()) {
    test(`see it when one breaks: ${title}`, () => {
      const [files, offence] = BROKEN[title] ?? [];
      assert.ok(files !== undefined && offence !== undefined, "no broken example for this rule");
      assert.match(offences(title, files).join("\n"), offence);
    });
  }

  const FLOOR_RULE = "imports lead down the floors, and only boot imports config and platform";
  const FORBIDDEN: readonly (readonly [from: string, to: string])[] = [
    ["exec/exec", "files/index"],
    ["health/health", "workload/index"],
    ["server/management", "client/index"],
    ["rpc/call", "server/index"],
    ["exec/exec", "rpc/index"],
    ["exec/exec", "gen/exec_pb"],
    ["domain/frames", "gen/exec_pb"],
    ["domain/frames", "native/index"],
    ["exec/exec", "native/index"],
    ["config/bootstrap", "platform/index"],
    ["server/management", "platform/index"],
    ["cli/main", "config/index"],
    ["boot", "gen/exec_pb"],
    ["exec/exec", "boot"],
  ];
  for (const [from, to] of FORBIDDEN) {
    test(`forbid that ${from} imports ${to}`, () => {
      const up = "../".repeat(from.split("/").length - 1) || "./";
      assert.equal(offences(FLOOR_RULE, { [`src/${from}.ts`]: `import { x } from "${up}${to}.ts";` }).length, 1);
    });
  }
});

describe("the parser of imports", () => {
  const parsed = (text: string): Module => parseModule("src/exec/exec.ts", text);

  test("sees every form of import", () => {
    const text = `
      import "./side-effect.ts";
      import fs, { type Stats } from "node:fs";
      import type {
        A,
        B,
      } from "../domain/index.ts";
      export { run } from "./run.ts";
      export * from './all.ts';
      export type { Deep } from "../../package.json";
      const lazy = await import("./lazy.ts");
      type Loaded = typeof import("@scope/loaded");
    `.replaceAll(/^ {6}/gm, "");
    const { files, packages, untraceable } = parsed(text);
    assert.deepEqual(files, [
      "src/exec/side-effect.ts",
      "src/domain/index.ts",
      "src/exec/run.ts",
      "src/exec/all.ts",
      "package.json",
      "src/exec/lazy.ts",
    ]);
    assert.deepEqual(packages, ["node:fs", "@scope/loaded"]);
    assert.equal(untraceable, 0);
  });

  test("takes neither comments nor other statements for imports", () => {
    const text =
      '// import "./a.ts";\n/* import "./b.ts"; */\nexport const from = "./c.ts";\nexport function f() {}\nconst x = "./d.ts";';
    assert.deepEqual(parsed(text).files, []);
  });
});
