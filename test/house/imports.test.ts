import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parseModule, readModules } from "./imports/modules.ts";
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
    { "src/agent/utils/text.ts": "", "src/exec/start.ts": "", "src/node/guestctl/help/a.ts": "" },
    /src\/agent\/utils is no room[^]*src\/exec\/start is no room[^]*src\/node\/guestctl\/help is no room/,
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
    {
      "src/agent/rpc/call.ts": 'import type { Settings } from "../config/index.ts";',
      "src/node/sandboxes/node/node.ts": 'import { create } from "../operations/index.ts";',
    },
    /rpc may not enter config[^]*sandboxes\/node may not enter sandboxes\/operations/,
  ],
  "a room is entered through its index.ts": [
    {
      "src/agent/rpc/call.ts": 'import { run } from "../exec/exec.ts";',
      "src/node/guestctl/sandbox/node.ts":
        'import { Sandboxes } from "../../sandboxes/api/index.ts";\nimport { nearest } from "../cli/option.ts";',
    },
    /enter src\/agent\/exec through its index\.ts[^]*enter src\/node\/sandboxes through[^]*enter src\/node\/guestctl\/cli/,
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
  "inside a room with layers, imports lead down, and every folder is a layer": [
    {
      "src/agent/files/open/directory.ts": 'import type { NewFile } from "../entries/new-file.ts";',
      "src/agent/files/attributes.ts": 'import type { FileWork } from "./threads/work.ts";',
      "src/agent/files/tree/list.ts": "",
    },
    /directory\.ts must not import src\/agent\/files\/entries[^]*attributes\.ts must not import[^]*tree\/list\.ts is in no layer/,
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
});
