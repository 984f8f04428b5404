import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  Health,
  type HealthCheckResponse,
  HealthCheckResponse_ServingStatusSchema,
} from "../../../src/shared/gen/grpc/health/v1/health_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HookKind, RunHookRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { create } from "@bufbuild/protobuf";
import { startAgent, type RunningAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { lacksCgroups } from "../../fixtures/namespaces.ts";
import { ask, grpcJsClient, type RpcClient, RpcFailure } from "../../fixtures/rpc-clients.ts";

const WATCH_LIMIT = 8;
/** Status codes of gRPC. */
const [NOT_FOUND, UNAVAILABLE, UNAUTHENTICATED] = [5, 14, 16];
const SLEEP = { args: ["sleep", "600"] };

/** An agent whose ready_cmd succeeds while the file exists. */
async function agentWithReadiness(file: string): Promise<RunningAgent> {
  const readyCmd = { args: ["test", "-e", file], intervalMs: 20 };
  return startAgent({ process: { ...SLEEP, readyCmd } });
}

const nameOf = ({ status: value }: HealthCheckResponse): string =>
  HealthCheckResponse_ServingStatusSchema.value[value]?.name ?? String(value);

/** A call of Watch on its own connection. */
class Watch implements AsyncDisposable {
  readonly #client: RpcClient;
  readonly #end = new AbortController();
  readonly #responses: AsyncIterator<HealthCheckResponse>;

  constructor(agent: RunningAgent, service = "") {
    this.#client = grpcJsClient(agent);
    const options = { signal: this.#end.signal };
    this.#responses = this.#client.call(Health.method.watch, [{ service }], options)[Symbol.asyncIterator]();
  }

  /** The next status. Rejects with the failure of the call. */
  async next(): Promise<string> {
    const result = await this.#responses.next();
    assert.ok(result.done !== true, "the call ended");
    return nameOf(result.value);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort();
    await this.#responses.next().catch(() => {});
    this.#client.close();
  }
}

const check = async (agent: RunningAgent, service: string): Promise<string> =>
  nameOf(await ask(agent, Health.method.check, { service }));

describe("grpc.health.v1.Health", () => {
  it("Health.Check returns SERVING for the agent and each of its services", async () => {
    await using agent = await startAgent({ process: SLEEP });
    const { services } = await ask(agent, GuestAgent.method.health, {});
    assert.ok(services.includes("grpc.health.v1.Health"), services.join());
    for (const service of ["", ...services]) assert.equal(await check(agent, service), "SERVING", service);
  });

  it("Health.Check returns NOT_FOUND for an unknown service", async () => {
    await using agent = await startAgent();
    await assert.rejects(check(agent, "svc.guest.v9.Nothing"), (error) => {
      assert.ok(error instanceof RpcFailure);
      assert.deepEqual([error.code, error.reason], [NOT_FOUND, "SERVICE_NOT_FOUND"]);
      assert.match(error.message, /svc\.guest\.v9\.Nothing/);
      return true;
    });
  });

  it("Health.Check requires the token", async () => {
    await using agent = await startAgent();
    const guess = ask(agent, Health.method.check, {}, { token: "guess" });
    await assert.rejects(guess, (error) => error instanceof RpcFailure && error.code === UNAUTHENTICATED);
  });

  it("Health.Watch sends each readiness change, and NOT_SERVING when the agent stops", async () => {
    await using directory = await testDirectory();
    const file = join(directory.path, "ready");
    await using agent = await agentWithReadiness(file);
    await using watch = new Watch(agent);
    assert.equal(await watch.next(), "NOT_SERVING");
    await writeFile(file, "");
    assert.equal(await watch.next(), "SERVING");
    await rm(file);
    assert.equal(await watch.next(), "NOT_SERVING");
    await writeFile(file, "");
    assert.equal(await watch.next(), "SERVING");
    agent.kill("SIGTERM");
    assert.equal(await watch.next(), "NOT_SERVING");
    await assert.rejects(watch.next(), (error) => error instanceof RpcFailure && error.code === UNAVAILABLE);
  });

  it("Health.Watch sends SERVICE_UNKNOWN once for an unknown service", async () => {
    await using directory = await testDirectory();
    const file = join(directory.path, "ready");
    await using agent = await agentWithReadiness(file);
    await using watch = new Watch(agent, "svc.guest.v9.Nothing");
    assert.equal(await watch.next(), "SERVICE_UNKNOWN");
    await writeFile(file, "");
    await agent.logged("readiness_changed", ({ ready }) => ready === true);
    agent.kill("SIGTERM");
    await assert.rejects(watch.next(), (error) => error instanceof RpcFailure && error.code === UNAVAILABLE);
  });

  it("Health.Watch rejects a ninth client until one disconnects", async () => {
    await using agent = await startAgent();
    await using stack = new AsyncDisposableStack();
    const watches = Array.from({ length: WATCH_LIMIT }, () => stack.use(new Watch(agent)));
    for (const watch of watches) assert.equal(await watch.next(), "SERVING");
    await using ninth = new Watch(agent);
    await assert.rejects(ninth.next(), (error) => error instanceof RpcFailure && error.reason === "TOO_MANY_WATCHERS");
    await watches[0]?.[Symbol.asyncDispose]();
    for (;;) {
      await using again = new Watch(agent);
      const answer = await again.next().catch((error: unknown) => error);
      if (answer === "SERVING") break;
      assert.ok(answer instanceof RpcFailure && answer.reason === "TOO_MANY_WATCHERS", String(answer));
    }
  });

  it("Health.Check and Health.Watch do not count as user activity", async () => {
    await using agent = await startAgent({ process: SLEEP });
    const before = await ask(agent, GuestAgent.method.health, {});
    await using watch = new Watch(agent);
    await watch.next();
    await check(agent, "");
    const after = await ask(agent, GuestAgent.method.health, {});
    assert.deepEqual(after.lastUserActivity, before.lastUserActivity);
  });

  it("Health.Check keeps its status while the session is frozen", async (t) => {
    await using directory = await testDirectory();
    const file = join(directory.path, "ready");
    await writeFile(file, "");
    await using agent = await agentWithReadiness(file);
    if (lacksCgroups(t, agent)) return;
    await agent.logged("readiness_changed", ({ ready }) => ready === true);
    await using watch = new Watch(agent);
    assert.equal(await watch.next(), "SERVING");
    const request = create(RunHookRequestSchema, { kind: HookKind.PRE_SNAPSHOT, freezeMs: 60_000 });
    assert.equal((await ask(agent, GuestAgent.method.runHook, request)).frozen, true);
    await rm(file);
    assert.equal(await check(agent, ""), "SERVING");
    await ask(agent, GuestAgent.method.runRestoreDuties, { entropy: Buffer.alloc(32, 1) });
    // The duties end the calls of other connections.
    await assert.rejects(watch.next(), RpcFailure);
  });
});
