import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cp, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { execa } from "execa";
import { machinePath } from "../../../scripts/machine/npm.ts";
import { makeClientLibrary } from "../../../scripts/package/client-library.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { testFolder } from "../../fixtures/files.ts";
import { cachedFolder } from "../../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../../..");
const PACKAGES = [
  "@opentelemetry/api@1.9.1",
  "@opentelemetry/instrumentation@0.223.0",
  "@opentelemetry/instrumentation-grpc@0.223.0",
  "@opentelemetry/sdk-trace-node@2.12.1",
];

/** The program of the library's page. */
function programOfPage(): string {
  const page = readFileSync(join(ROOT, "docs/node/client.md"), "utf8");
  const [, program] = /^## Tracing\n[^]*?^```js\n([^]*?)^```$/m.exec(page) ?? [];
  assert.ok(program !== undefined, "client.md has no program about tracing");
  return program;
}

/** OpenTelemetry's packages from npm, once. */
function openTelemetry(): Promise<string> {
  return cachedFolder(`opentelemetry-${PACKAGES.map((name) => name.split("@").at(-1)).join("-")}`, async (folder) => {
    await writeFile(join(folder, "package.json"), "{}");
    const options = { cwd: folder, env: { PATH: machinePath() } };
    await execa("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", ...PACKAGES], options);
  });
}

describe("OpenTelemetry's instrumentation of gRPC", () => {
  it("records a span for each call of the library, and the command continues its trace", async () => {
    await using folder = await testFolder();
    await using agent = await startSocketAgent();
    await cp(join(await openTelemetry(), "node_modules"), folder.at("node_modules"), { recursive: true });
    await makeClientLibrary(ROOT, folder.at("node_modules/guest-agent-client"));
    for (const scope of ["@bufbuild", "@grpc", "long", "protobufjs", "@js-sdsl", "lodash.camelcase", "yargs"]) {
      // What the library imports; the project's own copies serve.
      await symlink(join(ROOT, "node_modules", scope), folder.at(`node_modules/${scope}`)).catch(() => {});
    }
    await writeFile(folder.at("program.mjs"), programOfPage());
    const env = { SOCKET: agent.socketPath, TOKEN: agent.token };
    const { stdout } = await execa(process.execPath, ["program.mjs"], { cwd: folder.path, env });
    const [, traceId, parentId] = /in the sandbox: 00-([0-9a-f]{32})-([0-9a-f]{16})-01/.exec(stdout) ?? [];
    assert.ok(traceId !== undefined && parentId !== undefined, stdout);
    assert.match(stdout, /name: 'grpc\.svc\.guest\.v1alpha1\.GuestAgent\/Exec'/);
    const spans = stdout.split("resource:").slice(1);
    assert.deepEqual(
      spans.map((span) => span.includes(`traceId: '${traceId}'`)),
      [true, true],
    );
    const call = spans.find((span) => span.includes("GuestAgent/Exec"));
    assert.ok(call?.includes(parentId) === true, stdout);
  });
});
