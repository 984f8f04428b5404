import { create } from "@bufbuild/protobuf";
import { Mutex } from "../../domain/index.ts";
import type { Exec } from "../../exec/index.ts";
import type { Files, Directories, Watches } from "../../files/index.ts";
import { ExecSessions } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Lifecycle, StopResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import type { Health, HealthWatches } from "../../health/index.ts";
import type { Hooks } from "../../hooks/index.ts";
import type { ProcessList } from "../../processes/index.ts";
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

export interface Capabilities {
  readonly health: Health;
  readonly healthWatches: HealthWatches;
  readonly exec: Exec;
  readonly files: Files;
  /** Loads the code of Directories when it is called for the first time. */
  readonly directories: () => Promise<Directories>;
  readonly hooks: Hooks;
  readonly restore: Restore<Connection>;
  /** Loads the code of tunnels and creates the Tunnels when it is called for the first time. */
  readonly tunnels: () => Promise<Tunnels>;
  readonly usage: () => Promise<Usage>;
  readonly processes: () => Promise<ProcessList>;
  /** Loads the code of FileTree.Watch and creates the Watches when it is called for the first time. */
  readonly fileWatches: () => Promise<Watches>;
  /** Begins the shutdown, as SIGTERM does. Returns the workload's grace period in milliseconds. */
  readonly stop: () => number;
}

/** Registers the methods of all gRPC services that the host can call. */
export function serveGuestAgent(router: Router, capabilities: Capabilities): void {
  const { health, healthWatches, exec, files, directories, hooks, restore, tunnels, usage, processes } = capabilities;
  const { fileWatches, stop } = capabilities;
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
  // Runs as soon as a RunRestoreDuties call arrives, and marks the restore steps as running. So a POST_RESTORE hook
  // that is called right afterwards waits for them.
  const arrived = (): (() => void) => restore.begin();
  router.unary(
    GuestAgent.method.runRestoreDuties,
    (request, call) => serveRestoreDuties(restore, request, call),
    arrived,
  );
  router.unary(ExecSessions.method.listExecs, () => listExecs(exec));
  router.unary(ExecSessions.method.endExec, (request, call) => endExec(exec, request, call.signal));
  router.unary(ExecSessions.method.signalExec, (request, call) => signalExec(exec, request, call.signal));
  router.unary(ExecSessions.method.listProcesses, async () => {
    const [{ listProcesses }, list] = await Promise.all([import("./processes.ts"), processes()]);
    return listProcesses(list);
  });
  router.unary(ExecSessions.method.signalProcess, async (request) => {
    const [{ signalProcess }, list] = await Promise.all([import("./processes.ts"), processes()]);
    return signalProcess(list, request);
  });
  router.registerLazy("svc.guest.v1alpha1.FileTree", async () => {
    const [{ serveFileTree }, capability] = await Promise.all([import("./file-tree.ts"), directories()]);
    serveFileTree(router, capability, fileWatches);
  });
  router.registerLazy("svc.guest.v1alpha1.Tunnel", async () => {
    const [{ serveTunnels }, built] = await Promise.all([import("./tunnel.ts"), tunnels()]);
    serveTunnels(router, built);
  });
  router.registerLazy("svc.guest.v1alpha1.UsageService", async () => {
    const [{ serveUsage }, built] = await Promise.all([import("./usage.ts"), usage()]);
    serveUsage(router, built);
  });
  router.registerLazy("grpc.health.v1.Health", async () => {
    const { serveStandardHealth } = await import("./standard-health.ts");
    serveStandardHealth(router, health, healthWatches);
  });
  router.registerLazy("grpc.reflection.v1.ServerReflection", async () => {
    const { serveReflection } = await import("./reflection.ts");
    serveReflection(router);
  });
  router.unary(Lifecycle.method.stop, () => create(StopResponseSchema, { stopGraceMs: stop() }));
}
