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

/** Files that break each rule, and the expected offence. A rule that cannot fail holds nothing. */
const BROKEN: Readonly<Record<string, readonly [files: Readonly<Record<string, string>>, offence: RegExp]>> = {
  "every folder of src is a house, and every folder in it a room of that house": [
    { "src/agent/utils/text.ts": "", "src/exec/start.ts": "", "src/node/exec/exec.ts": "" },
    /src\/agent\/utils is no room[^]*src\/exec\/start is no room[^]*src\/node\/exec is no room/,
  ],
  "the agent and the node side know nothing of each other, and shared nothing of either": [
    {
      "src/agent/exec/exec.ts": 'import { connect } from "../../node/client/index.ts";',
      "src/node/client/dial.ts": 'import { Mutex } from "../../agent/domain/index.ts";',
      "src/shared/errors.ts": 'import { AgentError } from "../agent/domain/index.ts";',
      "src/shared/transports.ts": 'import { GuestError } from "../node/client/index.ts";',
    },
    /agent knows nothing of node[^]*node knows nothing of agent[^]*shared knows nothing of agent[^]*shared knows nothing of node/,
  ],
  "imports lead down the floors, and only boot imports config and platform": [
    { "src/agent/rpc/call.ts": 'import type { Settings } from "../config/index.ts";' },
    /rpc may not enter config/,
  ],
  "a room is entered through its index.ts": [
    { "src/agent/rpc/call.ts": 'import { run } from "../exec/exec.ts";' },
    /must enter src\/agent\/exec through its index\.ts/,
  ],
  "modules that load later than their room are loaded by import()": [
    {
      "src/agent/boot/agent.ts": 'import { warmUp } from "../server/warm-up.ts";',
      "src/agent/boot/listeners.ts": 'import type { Capabilities } from "../rpc/handlers/serve.ts";',
    },
    /^src\/agent\/boot\/agent\.ts must load src\/agent\/server\/warm-up\.ts by import\(\)[^\n]*$/,
  ],
  "every room has an index.ts, and no folder in it has one": [
    { "src/agent/exec/a.ts": "", "src/agent/exec/frames/index.ts": "" },
    /src\/agent\/exec has no index\.ts[^]*src\/agent\/exec\/frames\/index\.ts is a door inside a room/,
  ],
  "only the rooms of the wire see protobuf, gRPC and HTTP/2": [
    { "src/agent/exec/exec.ts": 'import type { Message } from "@bufbuild/protobuf";' },
    /must not see the wire/,
  ],
  "the domain imports nothing but the domain": [
    { "src/agent/domain/clock.ts": 'import { hrtime } from "node:process";' },
    /must be pure: it imports node:process/,
  ],
  "every import can be followed": [{ "src/agent/boot.ts": "await import(name);" }, /nobody can follow/],
  "no imports in a circle": [
    {
      "src/agent/exec/a.ts": 'export type { B } from "./b.ts";',
      "src/agent/exec/b.ts": 'const lazy = () => import("./c.ts");',
      "src/agent/exec/c.ts": 'import { a } from "./a.ts";',
    },
    /cycle: (src\/agent\/exec\/[abc]\.ts → ){3}src\/agent\/exec\/a\.ts/,
  ],
  "no using in a loop": [
    {
      "src/node/guestctl/a.ts":
        "function f() {\n  for (;;) {\n    try {\n      using client = dial();\n    } catch {}\n  }\n}",
    },
    /src\/node\/guestctl\/a\.ts:4 has using in a loop/,
  ],
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
    ["agent/exec/exec", "agent/files/index"],
    ["agent/health/health", "agent/workload/index"],
    ["agent/rpc/call", "agent/server/index"],
    ["agent/exec/exec", "agent/rpc/index"],
    ["agent/exec/exec", "shared/gen/exec_pb"],
    ["agent/domain/frames", "shared/gen/exec_pb"],
    ["agent/domain/frames", "shared/errors"],
    ["agent/domain/frames", "agent/native/index"],
    ["agent/exec/exec", "agent/native/index"],
    ["agent/config/bootstrap", "agent/platform/index"],
    ["agent/server/management", "agent/platform/index"],
    ["agent/boot/agent", "shared/gen/exec_pb"],
    ["agent/exec/exec", "agent/boot/index"],
    ["node/client/dial", "node/sandboxes/index"],
    ["node/credentials/folder", "node/client/index"],
    ["node/sandboxes/create", "node/guestctl/index"],
    ["node/tar/read", "node/client/index"],
    ["node/sandboxes/create", "shared/gen/exec_pb"],
  ];
  for (const [from, to] of FORBIDDEN) {
    test(`forbid that ${from} imports ${to}`, () => {
      const up = "../".repeat(from.split("/").length - 1);
      assert.equal(offences(FLOOR_RULE, { [`src/${from}.ts`]: `import { x } from "${up}${to}.ts";` }).length, 1);
    });
  }
});

describe("the parser of imports", () => {
  const parsed = (text: string): Module => parseModule("src/agent/exec/exec.ts", text);

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
      export type { Deep } from "../../../package.json";
      const lazy = await import("./lazy.ts");
      type Loaded = typeof import("@scope/loaded");
    `.replaceAll(/^ {6}/gm, "");
    const { files, packages, untraceable } = parsed(text);
    assert.deepEqual(files, [
      "src/agent/exec/side-effect.ts",
      "src/agent/domain/index.ts",
      "src/agent/exec/run.ts",
      "src/agent/exec/all.ts",
      "package.json",
      "src/agent/exec/lazy.ts",
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
