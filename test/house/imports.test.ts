import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parseSource, readSources } from "./imports/sources.ts";
import { RULES } from "./imports/rules.ts";

const sources = readSources(join(import.meta.dirname, "../.."));

function offences(title: string, files: Readonly<Record<string, string>>): string[] {
  const rule = RULES.get(title);
  assert.ok(rule, `no rule is called "${title}"`);
  return rule(Object.entries(files).map(([path, text]) => parseSource(path, text)));
}

/** Files that break each rule, and the expected offence. It proves that the rule can fail. */
const BROKEN: Readonly<Record<string, readonly [files: Readonly<Record<string, string>>, offence: RegExp]>> = {
  "every directory of src is a known program, and every directory in it a known module": [
    { "src/agent/utils/text.ts": "", "src/exec/start.ts": "", "src/node/guestctl/help/a.ts": "" },
    /src\/agent\/utils is not a known module[^]*src\/exec\/start is not a known module[^]*src\/node\/guestctl\/help is not a known module/,
  ],
  "the agent and the node side do not import each other, and shared imports neither": [
    {
      "src/agent/exec/exec.ts": 'import { connect } from "../../node/client/index.ts";',
      "src/node/client/dial.ts": 'import { Mutex } from "../../agent/domain/index.ts";',
      "src/shared/errors.ts": 'import { AgentError } from "../agent/domain/index.ts";',
      "src/shared/transports.ts": 'import { GuestError } from "../node/client/index.ts";',
    },
    /agent must not depend on node[^]*node must not depend on agent[^]*shared must not depend on agent[^]*shared must not depend on node/,
  ],
  "a module imports only lower layers, and only boot imports config and platform": [
    {
      "src/agent/rpc/call.ts": 'import type { Settings } from "../config/index.ts";',
      "src/node/sandboxes/state/node.ts": 'import { create } from "../operations/index.ts";',
    },
    /rpc may not import config[^]*sandboxes\/state may not import sandboxes\/operations/,
  ],
  "a module is imported only through its index.ts": [
    {
      "src/agent/rpc/call.ts": 'import { run } from "../exec/exec.ts";',
      "src/node/guestctl/sandbox/node.ts":
        'import { Sandboxes } from "../../sandboxes/api/index.ts";\nimport { nearest } from "../cli/option.ts";',
    },
    /import src\/agent\/exec through its index\.ts[^]*import src\/node\/sandboxes through[^]*import src\/node\/guestctl\/cli/,
  ],
  "files that load later than their module are loaded by import()": [
    {
      "src/agent/boot/agent.ts": 'import { warmUp } from "../server/warm-up.ts";',
      "src/agent/boot/listeners.ts": 'import type { Capabilities } from "../rpc/handlers/serve.ts";',
    },
    /^src\/agent\/boot\/agent\.ts must load src\/agent\/server\/warm-up\.ts by import\(\)[^\n]*$/,
  ],
  "every module has an index.ts, and no directory in it has one": [
    { "src/agent/exec/a.ts": "", "src/agent/exec/frames/index.ts": "" },
    /src\/agent\/exec has no index\.ts[^]*src\/agent\/exec\/frames\/index\.ts is an entry point inside a module/,
  ],
  "in a module with layers, files import only lower layers, and every directory is a layer": [
    {
      "src/agent/files/open/directory.ts": 'import type { NewFile } from "../entries/new-file.ts";',
      "src/agent/files/attributes.ts": 'import type { FileWork } from "./threads/work.ts";',
      "src/agent/files/tree/list.ts": "",
    },
    /directory\.ts must not import src\/agent\/files\/entries[^]*attributes\.ts must not import[^]*tree\/list\.ts is in no layer/,
  ],
  "every import can be followed": [{ "src/agent/boot.ts": "await import(name);" }, /which these rules cannot follow/],
  "no imports form a cycle": [
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

describe("the imports of src", () => {
  test("the search for sources in src finds more than 50 files with imports", () => {
    assert.ok(sources.length > 50, `found ${sources.length} sources`);
    const imports = sources.flatMap(({ files }) => files);
    assert.ok(imports.length > sources.length, `found ${imports.length} imports in ${sources.length} sources`);
  });

  for (const [title, rule] of RULES) {
    test(`src follows the rule: ${title}`, () => assert.deepEqual(rule(sources), []));
  }
});

describe("the check of imports", () => {
  for (const title of RULES.keys()) {
    test(`the import check detects a violation of: ${title}`, () => {
      const [files, offence] = BROKEN[title] ?? [];
      assert.ok(files !== undefined && offence !== undefined, "no broken example for this rule");
      assert.match(offences(title, files).join("\n"), offence);
    });
  }
});
