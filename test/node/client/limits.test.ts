import assert from "node:assert/strict";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import {
  type CallOptions,
  finishRestore,
  type GuestClient,
  type GuestError,
  restoreDuties,
  restoreSequence,
} from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { relayTo } from "../../fixtures/relay.ts";

type Limits = Pick<CallOptions, "signal" | "requestTimeoutMs">;
type Call = (client: GuestClient, options: Limits) => unknown;

const agent = forAllTests(await startAgent());
const directory = forAllTests(await testDirectory());
/** Accepts connections and passes nothing on. */
const silent = forAllTests(await relayTo(agent.port));
void silent.freeze();

const never = new Promise<never>(() => undefined);
async function* endless(): AsyncGenerator<never> {
  yield await never;
}
const first = (values: AsyncIterable<unknown>): Promise<unknown> => values[Symbol.asyncIterator]().next();
const keep = { name: "limits" };
const entropy = Buffer.alloc(64);
const duties = { frozen: false, degraded: "" } as never;

/** A call of every method that takes time, by the class that has it. */
const CALLS: Readonly<Record<string, Readonly<Record<string, Call>>>> = {
  GuestClient: {
    health: (client, options) => client.health(options),
    run: (client, options) => client.run(["true"], options),
    start: (client, options) => client.start(["true"], options).wait(),
    usage: (client, options) => client.usage(options),
    watchUsage: (client, options) => first(client.watchUsage(options)),
    stop: (client, options) => client.stop(options),
  },
  Commands: {
    run: (client, options) => client.commands.run(["true"], { keep, ...options }),
    start: (client, options) => client.commands.start(["true"], { keep, ...options }).wait(),
    attach: (client, options) => client.commands.attach("any", options).wait(),
    workloadOutput: (client, options) => client.commands.workloadOutput(options).wait(),
    list: (client, options) => client.commands.list(options),
    end: (client, options) => client.commands.end("any", options),
    signal: (client, options) => client.commands.signal("any", "SIGTERM", options),
    processes: (client, options) => client.commands.processes(options),
    signalProcess: (client, options) => client.commands.signalProcess({ pid: 1, startTicks: 1 }, 0, options),
  },
  Files: {
    readFile: (client, options) => client.files.readFile("/x", options),
    createReadStream: (client, options) => first(client.files.createReadStream("/x", options)),
    readPieces: (client, options) => first(client.files.readPieces("/x", options)),
    writeFile: (client, options) => client.files.writeFile("/x", endless(), options),
    stat: (client, options) => client.files.stat("/x", options),
    lstat: (client, options) => client.files.lstat("/x", options),
    exists: (client, options) => client.files.exists("/x", options),
    readlink: (client, options) => client.files.readlink("/x", options),
    readdir: (client, options) => client.files.readdir("/x", options),
    opendir: (client, options) => first(client.files.opendir("/x", options)),
    mkdir: (client, options) => client.files.mkdir("/x", options),
    symlink: (client, options) => client.files.symlink("a", "/x", options),
    rm: (client, options) => client.files.rm("/x", options),
    rename: (client, options) => client.files.rename("/x", "/y", options),
    chmod: (client, options) => client.files.chmod("/x", 0, options),
    chown: (client, options) => client.files.chown("/x", 0, 0, options),
    lchown: (client, options) => client.files.lchown("/x", 0, 0, options),
    setAttributes: (client, options) => client.files.setAttributes("/x", { mode: 0 }, options),
    upload: (client, options) => client.files.upload(directory.path, "/x", options),
    download: (client, options) => client.files.download("/x", join(directory.path, "back"), options),
    writeTree: (client, options) => client.files.writeTree("/x", endless(), options),
    readTree: (client, options) => first(client.files.readTree("/x", options)),
    watch: (client, options) => client.files.watch("/x", options).next(),
  },
  Ports: {
    connect: (client, options) => client.ports.connect(1, options).opened,
    waitFor: (client, options) => client.ports.waitFor(1, { timeoutMs: Infinity, ...options }),
    list: (client, options) => client.ports.list(options),
    watch: (client, options) => first(client.ports.watch(options)),
  },
  Snapshots: {
    prepare: (client, options) => client.snapshots.prepare(options),
    hook: (client, options) => client.snapshots.hook("post-restore", options),
    duties: (client, options) => client.snapshots.duties({ entropy, ...options }),
    completeRestore: (client, options) => client.snapshots.completeRestore({ reachTimeoutMs: Infinity, ...options }),
  },
  functions: {
    restoreDuties: (client, options) => restoreDuties(() => client, { reachTimeoutMs: Infinity, ...options }),
    restoreSequence: (client, options) => restoreSequence(() => client, { reachTimeoutMs: Infinity, ...options }),
    finishRestore: (client, options) =>
      finishRestore(() => client, { duties, atMs: 0 }, { reachTimeoutMs: Infinity, ...options }),
  },
};

/** Methods that return at once; and `forward`, which forward.test.ts tests. */
const IMMEDIATE: ReadonlySet<string> = new Set(["constructor", "addressInUse", "agentVersion", "close", "forward"]);

describe("signal and requestTimeoutMs", () => {
  const probe = clientOf(agent);
  after(() => probe.close());
  it("the tests of `signal` and `requestTimeoutMs` cover every method of the client", () => {
    const { commands, files, ports, snapshots } = probe;
    for (const [name, part] of Object.entries({
      GuestClient: probe,
      Commands: commands,
      Files: files,
      Ports: ports,
      Snapshots: snapshots,
    }))
      assert.deepEqual(
        Object.getOwnPropertyNames(Object.getPrototypeOf(part))
          .filter((method) => !IMMEDIATE.has(method))
          .toSorted(),
        Object.keys(CALLS[name] ?? {}).toSorted(),
      );
  });

  for (const [part, calls] of Object.entries(CALLS))
    for (const [method, call] of Object.entries(calls)) {
      it(`${part}.${method} accepts a signal and a time limit`, async () => {
        const made = async (options: Limits): Promise<GuestError> => {
          using client = clientOf({ ...agent, port: silent.port });
          return await failureOf(Promise.resolve().then(() => call(client, options)));
        };
        for (const signal of [AbortSignal.abort(new Error("stop")), AbortSignal.timeout(100)]) {
          const { name, code, cause } = await made({ signal });
          // As an aborted call of Node does: https://nodejs.org/api/errors.html#abort_err
          assert.deepEqual([name, code, cause], ["AbortError", "ABORT_ERR", signal.reason]);
        }
        const { status, message } = await made({ requestTimeoutMs: 100 });
        assert.equal(status, "DEADLINE_EXCEEDED", message);
      });
    }
});
