import { type Configuration, tokenDigest } from "../config/index.ts";
import { type AgentError, type Log, SILENT_LOG } from "../domain/index.ts";
import type { CredentialRotation } from "../restore/index.ts";
import type { Capabilities } from "../rpc/handlers/serve.ts";
import { checkUnix, type Connection, listenError } from "../listening/index.ts";
import { errnoName } from "../native/index.ts";
import { arrivalsWatcher } from "../platform/index.ts";
import type { Router } from "../rpc/index.ts";
import type { ManagementServer } from "../server/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import type { Platform } from "./platform.ts";

/** What the listeners need: the platform, the configuration, and callbacks that tell the agent how busy they are. */
export interface ListenerParts {
  readonly platform: Platform;
  readonly configuration: Configuration;
  readonly log: Log;
  /** Called when a management call begins or ends, with the number of calls in progress. */
  readonly onCalls: (running: number) => void;
  /** Called with true when the first large call begins, and with false when the last one has ended. */
  readonly onLargeCalls: (any: boolean) => void;
}

/** The connections that the restore steps close. */
export type Connections = Pick<ManagementServer, "dropOtherConnections">;

/**
 * Path of the Exec method. refuseCalls() does not refuse it, because during shutdown the exec service still serves the
 * last output of the workload.
 */
const EXEC = "/svc.guest.v1alpha1.GuestAgent/Exec";

/** The management listeners. Their code is loaded when they are opened, so that the workload does not wait for it. */
export class Listeners {
  readonly #parts: ListenerParts;
  #management: ManagementServer | undefined;
  #router: Router | undefined;
  #capabilities: Capabilities | undefined;
  #refusal: AgentError | undefined;
  /** Listening sockets that bind() has opened and serveManagement() has not taken over yet. */
  #tcpFd: number | undefined;
  #vsockFd: number | undefined;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
  }

  /**
   * Listens on the configured ports, so that a port in use is reported before the workload starts. Connections wait in
   * the kernel's backlog. Throws AgentError on failure.
   */
  async bind(): Promise<void> {
    const { configuration, platform } = this.#parts;
    const { guestPort, guestVsockPort, guestSocketPath } = configuration;
    const { addon } = platform;
    const bound = (fd: number, kind: string, port: number): number => {
      if (fd < 0) throw listenError(`${kind} port ${port}`, { port: String(port) }, errnoName(fd));
      return fd;
    };
    if (guestPort !== undefined) this.#tcpFd = bound(addon.listenPort(guestPort), "TCP", guestPort);
    if (guestVsockPort !== undefined) this.#vsockFd = bound(addon.listenVsock(guestVsockPort), "vsock", guestVsockPort);
    if (guestSocketPath !== undefined) await checkUnix(guestSocketPath);
  }

  /** Serves the configured management listeners. Throws AgentError on failure. */
  async serveManagement(capabilities: Capabilities, rotation: CredentialRotation): Promise<void> {
    const { configuration, platform, log, onCalls, onLargeCalls } = this.#parts;
    const { addon, clock } = platform;
    const { guestVsockPort, guestSocketPath, credentials } = configuration;
    credentials.digestToken();
    const [{ Router }, { serveGuestAgent }, { ManagementServer, tokenAuthenticator, tokenField }] = await Promise.all([
      import("../rpc/index.ts"),
      import("../rpc/handlers/serve.ts"),
      import("../server/index.ts"),
    ]);
    const router = new Router({ clock, log, agentVersion: AGENT_VERSION, onCalls, onLargeCalls });
    serveGuestAgent(router, capabilities);
    const admitToken = tokenAuthenticator(
      {
        digest: tokenDigest,
        matches: (digest) => credentials.matchesToken(digest),
        current: () => credentials.currentToken,
      },
      credentials.tokenRotates ? () => rotation.renewForToken() : undefined,
    );
    const management = new ManagementServer({
      router,
      log,
      clock,
      watchArrivals: arrivalsWatcher(addon),
      unacknowledgedMs: (fd) => addon.unacknowledgedMs(fd),
      tokenField: tokenField({ digest: tokenDigest }),
      authenticate: (metadata) => {
        rotation.checkFiles();
        const decision = admitToken(metadata);
        const refusal = metadata[":path"] === EXEC ? undefined : this.#refusal;
        return decision instanceof Promise ? decision.then((refused) => refused ?? refusal) : (decision ?? refusal);
      },
      onConnection: () => rotation.checkFiles(),
    });
    this.#management = management;
    this.#router = router;
    this.#capabilities = capabilities;
    if (credentials.tls !== undefined) {
      if (addon.boundHandshakes() !== 1) {
        log.warn("handshakes_unbounded", {
          consequence: "any client that reaches the port, even one without a certificate, can keep the agent busy",
        });
      }
      if (addon.relaxCertificateChecks() !== 1) {
        log.warn("certificate_times_enforced", {
          consequence: "certificates that are not valid yet by the guest's clock are rejected",
        });
      }
    }
    if (this.#tcpFd !== undefined && credentials.tls !== undefined) {
      const port = await management.listenTcp({ fd: this.#tcpFd }, credentials.tls);
      log.info("management_listening", { port });
    }
    if (this.#vsockFd !== undefined) {
      await management.listenVsock(this.#vsockFd, (fd) => addon.vsockPeer(fd), credentials.tls);
      log.info("management_listening", { vsock_port: guestVsockPort });
    }
    if (guestSocketPath !== undefined) {
      await management.listenUnix(guestSocketPath);
      log.info("management_listening", { path: guestSocketPath });
    }
  }

  /**
   * Makes one connection and one call in memory. So the code for the first real connection and call is already loaded
   * and compiled.
   */
  async warmUp(): Promise<void> {
    const { configuration, platform } = this.#parts;
    if (this.#router === undefined) return;
    const { serverInMemory, warmUp } = await import("../server/warm-up.ts");
    await warmUp(serverInMemory(this.#router, platform.clock), configuration.credentials.tls);
  }

  /**
   * Runs, in memory, the calls that a node agent makes after a restore, so that V8 compiles their code now and not in
   * each clone. Never rejects.
   *
   * @param harmless is called with the in-memory server; returns the Exec and Restore for these calls, which must
   *   change nothing in the guest
   */
  async rehearse(harmless: (server: Connections) => Pick<Capabilities, "exec" | "restore">): Promise<void> {
    const { configuration, platform } = this.#parts;
    if (this.#capabilities === undefined) return;
    const [{ Router }, { serveGuestAgent }, { serverInMemory, warmUp }] = await Promise.all([
      import("../rpc/index.ts"),
      import("../rpc/handlers/serve.ts"),
      import("../server/warm-up.ts"),
    ]);
    const router = new Router({ clock: platform.clock, log: SILENT_LOG, agentVersion: AGENT_VERSION });
    const server = serverInMemory(router, platform.clock);
    serveGuestAgent(router, { ...this.#capabilities, ...harmless(server) });
    await warmUp(server, configuration.credentials.tls, { isRehearsal: true });
  }

  /** Makes new connections use the current credentials. */
  applyCredentials(): void {
    const { tls } = this.#parts.configuration.credentials;
    if (tls !== undefined) this.#management?.setCredentials(tls);
  }

  /** Closes every management connection except `keep`. Returns how many it closed. */
  dropOtherConnections(keep: Connection): number {
    return this.#management?.dropOtherConnections(keep) ?? 0;
  }

  /** From now on, new management calls fail with `error`, except calls of Exec. Calls in progress continue. */
  refuseCalls(error: AgentError): void {
    this.#refusal ??= error;
  }

  /** Closes all listeners. Calls in progress have `graceMs` to end. */
  async close(graceMs: number): Promise<void> {
    await this.#management?.shutdown(graceMs);
  }
}
