import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { cp, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { execa } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { machinePath } from "../../../scripts/machine/npm.ts";
import { makeClientLibrary } from "../../../scripts/package/client-library.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { buildGoTool, cachedDirectory, provideGo } from "../../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../../..");
const PACKAGES = [
  "@opentelemetry/api@1.9.1",
  "@opentelemetry/instrumentation@0.223.0",
  "@opentelemetry/instrumentation-grpc@0.223.0",
  "@opentelemetry/exporter-trace-otlp-proto@0.223.0",
  "@opentelemetry/sdk-trace-node@2.12.1",
];
const AGENT = "grpc.svc.guest.v1alpha1.GuestAgent";

/** The program of the library's page. */
function programOfPage(): string {
  const page = readFileSync(join(ROOT, "docs/node/client.md"), "utf8");
  const [, program] = /^## Tracing\n[^]*?^```js\n([^]*?)^```$/m.exec(page) ?? [];
  assert.ok(program !== undefined, "client.md has no program about tracing");
  return program;
}

/** OpenTelemetry's packages from npm, once. */
function openTelemetry(): Promise<string> {
  return cachedDirectory(
    `opentelemetry-${PACKAGES.map((name) => name.split("@").at(-1)).join("-")}`,
    async (directory) => {
      await writeFile(join(directory, "package.json"), "{}");
      const options = { cwd: directory, env: { PATH: machinePath() } };
      await execa("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", ...PACKAGES], options);
    },
  );
}

/** A span as OpenTelemetry's in-memory exporter has it, and as the collector received it. */
interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it is the trace's first. */
  readonly parentId: string;
  /** "Unset", or "Error" of a failed call. */
  readonly status: string;
  /** The gRPC status code; absent in a span that is not a call's. */
  readonly code?: number;
}

/** Makes calls of each kind in a span of its own, and prints their spans. Its exporter for the collector is OTLP's. */
const CALLS = `
import { register } from "node:module";
import { registerInstrumentations } from "@opentelemetry/instrumentation";
import { GrpcInstrumentation } from "@opentelemetry/instrumentation-grpc";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { SpanStatusCode, trace } from "@opentelemetry/api";

const memory = new InMemorySpanExporter();
const collector = new OTLPTraceExporter({ url: process.env["COLLECTOR"] });
const provider = new NodeTracerProvider({
  spanProcessors: [new SimpleSpanProcessor(memory), new SimpleSpanProcessor(collector)],
});
provider.register();
registerInstrumentations({ instrumentations: [new GrpcInstrumentation()] });
register("@opentelemetry/instrumentation/hook.mjs", import.meta.url);
const { connect } = await import("guest-agent-client");

const client = connect({ address: \`unix:\${process.env["SOCKET"]}\`, token: process.env["TOKEN"] });
await trace.getTracer("test").startActiveSpan("job", async (span) => {
  await client.health();
  await client.run(["cat"], { input: "some input" });
  await client.files.upload(process.env["SITE"], process.env["TARGET"]);
  await client.files.stat("/no/such/file").catch(() => {});
  span.end();
});
client.close();
const spans = memory.getFinishedSpans().map((span) => ({
  name: span.name,
  traceId: span.spanContext().traceId,
  spanId: span.spanContext().spanId,
  parentId: span.parentSpanContext?.spanId ?? "",
  status: { [SpanStatusCode.UNSET]: "Unset", [SpanStatusCode.OK]: "Ok", [SpanStatusCode.ERROR]: "Error" }[span.status.code],
  code: span.attributes["rpc.grpc.status_code"],
}));
await provider.shutdown();
console.log(JSON.stringify(spans));
`;

/** The real collector, which prints what it receives. */
class Collector {
  readonly url: string;
  readonly #process: ChildProcess;
  readonly #closed: Promise<unknown>;
  #printed = "";

  private constructor(endpoint: string, process: ChildProcess) {
    this.url = `http://${endpoint}/v1/traces`;
    this.#process = process;
    this.#closed = once(process, "close");
  }

  /** Resolves once it receives spans at {@link url}; rejects if it ends before. */
  static async start(program: string): Promise<Collector> {
    const endpoint = `127.0.0.1:${await freePort()}`;
    const configuration = {
      receivers: { otlp: { protocols: { http: { endpoint } } } },
      exporters: { debug: { verbosity: "detailed", use_internal_logger: false } },
      service: {
        // Otherwise it serves its own metrics at a fixed port.
        telemetry: { metrics: { level: "none" } },
        pipelines: { traces: { receivers: ["otlp"], exporters: ["debug"] } },
      },
    };
    // JSON is YAML.
    const args = [`--config=yaml:${JSON.stringify(configuration)}`];
    const process = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    const collector = new Collector(endpoint, process);
    const ready = new Promise<void>((resolve) => {
      for (const stream of [process.stdout, process.stderr])
        stream.setEncoding("utf8").on("data", (text: string) => {
          collector.#printed += text;
          if (collector.#printed.includes("Everything is ready.")) resolve();
        });
    });
    const ended = collector.#closed.then(() => {
      throw new Error(`the collector has ended: ${collector.#printed}`);
    });
    await Promise.race([ready, ended]);
    ended.catch(() => {});
    return collector;
  }

  /** Ends it, and resolves with the spans that it has received. */
  async end(): Promise<Span[]> {
    this.#process.kill("SIGTERM");
    await this.#closed;
    return this.#printed
      .split(/^Span #\d+$/m)
      .slice(1)
      .map(printedSpan);
  }
}

/** A span as the collector's debug exporter prints it: lines of `Name : value`, then `-> attribute: Int(value)`. */
function printedSpan(text: string): Span {
  const valueOf = (name: string): string => new RegExp(`^\\s+${name}\\s*: ?(.*)$`, "m").exec(text)?.[1]?.trim() ?? "";
  const [, code] = /rpc\.grpc\.status_code: Int\((\d+)\)/.exec(text) ?? [];
  return {
    name: valueOf("Name"),
    traceId: valueOf("Trace ID"),
    spanId: valueOf("ID"),
    parentId: valueOf("Parent ID"),
    status: valueOf("Status code"),
    ...(code !== undefined && { code: Number(code) }),
  };
}

describe("OpenTelemetry's instrumentation of gRPC", async () => {
  const directory = forAllTests(await testDirectory());
  const agent = forAllTests(await startSocketAgent());
  const go = await provideGo();

  /** Runs a program that imports the library and OpenTelemetry; resolves with what it prints. */
  async function run(name: string, program: string, env: Readonly<Record<string, string>>): Promise<string> {
    await writeFile(directory.at(name), program);
    const of = { SOCKET: agent.socketPath, TOKEN: agent.token, ...env };
    return (await execa(process.execPath, [name], { cwd: directory.path, env: of })).stdout;
  }

  before(async () => {
    await cp(join(await openTelemetry(), "node_modules"), directory.at("node_modules"), { recursive: true });
    await makeClientLibrary(ROOT, directory.at("node_modules/guest-agent-client"));
    for (const scope of ["@bufbuild", "@grpc", "long", "protobufjs", "@js-sdsl", "lodash.camelcase", "yargs"]) {
      // What the library imports; the project's own copies serve.
      await symlink(join(ROOT, "node_modules", scope), directory.at(`node_modules/${scope}`)).catch(() => {});
    }
  });

  it("OpenTelemetry records a span per call, and the command receives its trace context", async () => {
    const stdout = await run("program.mjs", programOfPage(), {});
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

  const skip = typeof go === "string" ? go : false;
  it("the OpenTelemetry collector receives each call's span with its gRPC status", { skip }, async () => {
    if (typeof go === "string") return;
    const collector = await Collector.start(await buildGoTool(go, join(import.meta.dirname, "collector"), "."));
    const site = directory.at("site");
    await cp(import.meta.dirname, site, { recursive: true });
    const env = { COLLECTOR: collector.url, SITE: site, TARGET: directory.at("target") };
    let stdout = "";
    let received: Span[] = [];
    try {
      stdout = await run("calls.mjs", CALLS, env);
    } finally {
      received = await collector.end();
    }
    const recorded = JSON.parse(stdout) as Span[];
    const job = recorded.find(({ name }) => name === "job");
    assert.ok(job !== undefined, stdout);
    const calls = recorded.filter((span) => span !== job);
    const named = new Map(calls.map((span) => [span.name, span]));
    for (const call of ["Health", "Exec"]) assert.equal(named.get(`${AGENT}/${call}`)?.code, 0, stdout);
    assert.ok(
      [...named.keys()].some((name) => name.startsWith("grpc.svc.guest.v1alpha1.FileTree/")),
      stdout,
    );
    const NOT_FOUND = 5;
    const failed = named.get(`${AGENT}/StatPath`);
    assert.deepEqual([failed?.code, failed?.status], [NOT_FOUND, "Error"], stdout);
    for (const { traceId, parentId } of calls) assert.deepEqual([traceId, parentId], [job.traceId, job.spanId]);
    const sorted = (spans: readonly Span[]): Span[] => spans.toSorted((a, b) => a.spanId.localeCompare(b.spanId));
    assert.deepEqual(sorted(received), sorted(recorded));
  });
});
