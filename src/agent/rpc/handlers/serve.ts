import { create } from "@bufbuild/protobuf";
import { Mutex } from "../../domain/index.ts";
import type { Exec } from "../../exec/index.ts";
import type { Files, Directories } from "../../files/index.ts";
import { ExecSessions } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Lifecycle, StopResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import type { Health, HealthWatches } from "../../health/index.ts";
import type { Hooks } from "../../hooks/index.ts";
import type { Restore } from "../../restore/index.ts";
import type { Tunnels } from "../../tunnel/index.ts";
import type { Usage } from "../../usage/index.ts";
import type { Connection } from "../../listening/index.ts";
import type { Router } from "../router.ts";
import { serveExec } from "./exec.ts";
import { endExec, listExecs, signalExec } from "./exec-sessions.ts";
import { locationOf, statResponse } from "./file-messages.ts";
import { serveReadFile, serveWriteFile } from "./files.ts";
import { healthFrame } from "./health.ts";
import { serveRunHook } from "./hooks.ts";
import { serveRestoreDuties } from "./restore.ts";

/** The capabilities behind the services. */
export interface Capabilities {
  readonly health: Health;
  readonly healthWatches: HealthWatches;
  readonly exec: Exec;
  readonly files: Files;
  /** Loads it at the first call. */
  readonly directories: () => Promise<Directories>;
  readonly hooks: Hooks;
  readonly restore: Restore<Connection>;
  /** Loads and builds them at the first call. */
  readonly tunnels: () => Promise<Tunnels>;
  readonly usage: () => Promise<Usage>;
  /** Begins the agent's end, as SIGTERM does. Returns the longest time that the workload gets, in milliseconds. */
  readonly stop: () => number;
}

/** Puts all services of the management channel on a router. */
export function serveGuestAgent(router: Router, capabilities: Capabilities): void {
  const { health, healthWatches, exec, files, directories, hooks, restore, tunnels, usage, stop } = capabilities;
  const largeStarts = new Mutex();
  let services: readonly string[] | undefined;
  router.unary(GuestAgent.method.health, () => healthFrame(health.report(), (services ??= router.services())));
  router.bidiStream(GuestAgent.method.exec, (call) => serveExec(exec, call, largeStarts));
  router.serverStream(GuestAgent.method.readFile, (request, call) => serveReadFile(files, request, call));
  router.clientStream(GuestAgent.method.writeFile, (call) => serveWriteFile(files, call));
  router.unary(GuestAgent.method.statPath, async (request) =>
    statResponse(await files.stat(locationOf(request), request.noFollow)),
  );
  router.unary(GuestAgent.method.runHook, (request, call) => serveRunHook(hooks, request, call));
  // Duties count from their arrival, so that a POST_RESTORE hook that is called a moment later does not overtake them.
  const arrived = (): (() => void) => restore.begin();
  router.unary(
    GuestAgent.method.runRestoreDuties,
    (request, call) => serveRestoreDuties(restore, request, call),
    arrived,
  );
  router.unary(ExecSessions.method.listExecs, () => listExecs(exec));
  router.unary(ExecSessions.method.endExec, (request, call) => endExec(exec, request, call.signal));
  router.unary(ExecSessions.method.signalExec, (request, call) => signalExec(exec, request, call.signal));
  router.later("svc.guest.v1alpha1.FileTree", async () => {
    const [{ serveFileTree }, capability] = await Promise.all([import("./file-tree.ts"), directories()]);
    serveFileTree(router, capability);
  });
  router.later("svc.guest.v1alpha1.Tunnel", async () => {
    const [{ serveTunnels }, built] = await Promise.all([import("./tunnel.ts"), tunnels()]);
    serveTunnels(router, built);
  });
  router.later("svc.guest.v1alpha1.UsageService", async () => {
    const [{ serveUsage }, built] = await Promise.all([import("./usage.ts"), usage()]);
    serveUsage(router, built);
  });
  router.later("grpc.health.v1.Health", async () => {
    const { serveStandardHealth } = await import("./standard-health.ts");
    serveStandardHealth(router, health, healthWatches);
  });
  router.later("grpc.reflection.v1.ServerReflection", async () => {
    const { serveReflection } = await import("./reflection.ts");
    serveReflection(router);
  });
  router.unary(Lifecycle.method.stop, () => create(StopResponseSchema, { stopGraceMs: stop() }));
}
