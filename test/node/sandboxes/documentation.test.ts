import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { testFolder } from "../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { HttpSubstrate } from "./substrate.ts";

const ROOT = join(import.meta.dirname, "../../..");
const document = readFileSync(join(ROOT, "docs/node/sandboxes.md"), "utf8");

describe("docs/node/sandboxes.md", () => {
  test("has an example that runs as it stands, and leaves nothing", NEEDS_NAMESPACES, async () => {
    const [, code = ""] = /^```ts\n([\s\S]*?)^```$/m.exec(document) ?? [];
    await using substrate = await HttpSubstrate.start();
    const library = join(ROOT, "src/node/sandboxes/index.ts");
    await using folder = await testFolder();
    const program = folder.at("example.mts");
    await writeFile(program, code.replace('"guest-agent-client/sandboxes"', JSON.stringify(library)));
    const { stdout } = await execa(process.execPath, [program], {
      env: {
        API: substrate.baseUrl,
        API_TOKEN: substrate.apiToken,
        STATE: substrate.stateFolder,
        AGENT: substrate.agentArchive,
        AGENT_PORT: String(substrate.agentPort),
      },
    });
    assert.match(stdout, /^hello\n\nDUTIES_DEGRADED(?: CLOCK_OFF)?$/);
    assert.deepEqual(substrate.left(), []);
  });
});
