import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { buildGoTool, provideGo } from "../../fixtures/go-toolchain.ts";
import { type SocketAgent, startSocketAgent } from "../../fixtures/socket-agent.ts";

/*
 * h2spec's whole list, its strict cases too, against the agent's unix socket: it cannot show a client certificate. What
 * runs above TLS is the same. It asks for `GET /`, which the agent answers without gRPC.
 */

const MODULES = join(import.meta.dirname, "h2spec");
const TOOL = "github.com/summerwind/h2spec/cmd/h2spec";
/** Cases of each list: one that shrinks has not been run as a whole. */
const LISTS = { generic: 44, http2: 95, hpack: 7 } as const;
/**
 * How long h2spec waits for what must come; what has come ends a case at once. Less than the 5 s after which the agent
 * closes a connection without a request, which h2spec would take for the right answer to many a mistake.
 */
const CASE_LIMIT_S = 4;
const RUN_LIMIT_MS = 500_000;

/** Cases that need not pass, by name (`http2/6.7: Sends …`), each with the reason. One that passes has no place here. */
const EXCEPTIONS: Readonly<Record<string, string>> = {};

interface Outcome {
  readonly name: string;
  /** What came instead of what was expected; that h2spec passed the case over; undefined: it passed. */
  readonly problem: string | undefined;
}

describe("HTTP/2 of the management listener, as h2spec judges it", () => {
  let agent: SocketAgent;
  let program: string;
  let reason: string | undefined;
  before(async () => {
    const toolchain = await provideGo();
    if (typeof toolchain === "string") {
      reason = toolchain;
      return;
    }
    [program, agent] = await Promise.all([buildGoTool(toolchain, MODULES, TOOL), startSocketAgent()]);
  });
  after(() => agent?.[Symbol.asyncDispose]());

  for (const [list, cases] of Object.entries(LISTS)) {
    test(`passes every case of the list "${list}" but the exceptions, and those for their reason only`, async (t) => {
      if (reason !== undefined) {
        t.skip(reason);
        return;
      }
      const outcomes = await run(program, agent.socketPath, list);
      assert.ok(outcomes.length >= cases, `${outcomes.length} cases of ${cases}`);
      const failed = outcomes.filter(({ name, problem }) => problem !== undefined && !(name in EXCEPTIONS));
      const lines = failed.map(({ name, problem }) => `${name}\n    ${problem?.replaceAll("\n", "\n    ")}`);
      assert.equal(failed.length, 0, `${failed.length} of ${outcomes.length} cases failed:\n${lines.join("\n")}`);
      const needless = outcomes.filter(({ name, problem }) => problem === undefined && name in EXCEPTIONS);
      assert.deepEqual(needless, [], "exceptions that are none");
    });
  }
});

/** Runs a list of h2spec through a relay of bytes, because it dials TCP only. */
async function run(program: string, socketPath: string, list: string): Promise<Outcome[]> {
  await using relay = await relayTo(socketPath);
  const folder = await mkdtemp(join(tmpdir(), "h2spec-"));
  try {
    const report = join(folder, "report.xml");
    const args = ["--strict", "--port", String(relay.port), "--timeout", String(CASE_LIMIT_S), "-j", report, list];
    // Its status says no more than the report does.
    await execa(program, args, { reject: false, timeout: RUN_LIMIT_MS });
    return outcomesOf(await readFile(report, "utf8"));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Passes bytes and ends on, in both directions and apart from each other. */
async function relayTo(path: string): Promise<AsyncDisposable & { readonly port: number }> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const agent = connect({ path, allowHalfOpen: true });
    client.on("error", () => agent.destroy()).on("close", () => agent.destroy());
    agent.on("error", () => client.destroy()).on("close", () => client.destroy());
    client.pipe(agent).pipe(client);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await once(server, "close");
    },
  };
}

/** The cases of a JUnit report: h2spec writes each as `<testcase package classname>`, with an element for what is wrong. */
function outcomesOf(report: string): Outcome[] {
  const cases = report.matchAll(/<testcase package="([^"]*)" classname="([^"]*)"[^>]*>(.*?)<\/testcase>/gs);
  return Array.from(cases, ([, section = "", title = "", body = ""]) => {
    const [, kind, text = ""] = /<(error|failure|skipped)\b[^>]*>(.*?)<\/\1>/s.exec(body) ?? [];
    const problem = kind === undefined ? undefined : kind === "skipped" ? "skipped" : instead(unescape(text));
    return { name: unescape(`${section}: ${title}`), problem };
  });
}

/** The last line is what came, the others are what would have been right. */
function instead(text: string): string {
  const lines = text.trim().split("\n");
  return `${lines.at(-1)} instead of ${lines.slice(0, -1).join(" or ")}`;
}

function unescape(text: string): string {
  const named: Readonly<Record<string, string>> = { lt: "<", gt: ">", quot: '"', amp: "&" };
  return text.replaceAll(/&(?:#(\d+)|(\w+));/g, (whole, code?: string, name?: string) =>
    code !== undefined ? String.fromCodePoint(Number(code)) : (named[name ?? ""] ?? whole),
  );
}
