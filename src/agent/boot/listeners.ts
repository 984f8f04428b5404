import { type Configuration, tokenDigest } from "../config/index.ts";
import { type AgentError, type Log, SILENT_LOG, type VsockListener } from "../domain/index.ts";
import type { CredentialRotation } from "../restore/index.ts";
import type { Capabilities } from "../rpc/handlers/serve.ts";
import { checkUnix, type Connection, listenError } from "../listening/index.ts";
import { errnoName } from "../native/index.ts";
import { arrivalsWatcher, vsockListener } from "../platform/index.ts";
import type { Router } from "../rpc/index.ts";
import type { ManagementServer } from "../server/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import type { Platform } from "./platform.ts";

/** What the listeners need. */
export interface ListenerParts {
  readonly platform: Platform;
  readonly configuration: Configuration;
  readonly log: Log;
  /** Called when a management call begins or ends, with the number of those that run. */
  readonly onCalls: (running: number) => void;
  /** Called with true when the first large call begins, with false when the last has ended. */
  readonly onLargeCalls: (any: boolean) => void;
}

/** Connections that restore duties end. */
export type Connections = Pick<ManagementServer, "dropOtherConnections">;

/** Refuses by itself all that the agent refuses while it leaves, but not the workload's last output. */
const EXEC = "/svc.guest.v1alpha1.GuestAgent/Exec";

/** The management listeners. Their code is loaded when they are opened: the workload does not wait for it. */
export class Listeners {
  readonly #parts: ListenerParts;
  #management: ManagementServer | undefined;
  #router: Router | undefined;
  #capabilities: Capabilities | undefined;
  #refusal: AgentError | undefined;
  /** What `bind` has opened, until it is served. */
  #tcpFd: number | undefined;
  #vsock: VsockListener | undefined;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
  }

  /**
   * Listens on the configured ports, so that one in use is found before the workload starts. Accepts nothing yet, and
   * loads no code for that: connections wait in the kernel. Throws AgentError when it cannot.
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
    if (guestVsockPort !== undefined) {
      this.#vsock = vsockListener(addon, bound(addon.listenVsock(guestVsockPort), "vsock", guestVsockPort));
    }
    if (guestSocketPath !== undefined) await checkUnix(guestSocketPath);
  }

  /** Opens the configured management listeners. Throws AgentError when it cannot. */
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
        log.warn("handshakes_unbounded", { consequence: "any client that reaches the port can keep the agent busy" });
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
    if (this.#vsock !== undefined) {
      management.serveVsock(this.#vsock, credentials.tls);
      log.info("management_listening", { vsock_port: guestVsockPort });
    }
    if (guestSocketPath !== undefined) {
      await management.listenUnix(guestSocketPath);
      log.info("management_listening", { path: guestSocketPath });
    }
  }

  /** Runs once, in memory, what the first connection to the management listener and its first call need. */
  async warmUp(): Promise<void> {
    const { configuration, platform } = this.#parts;
    if (this.#router === undefined) return;
    const { serverInMemory, warmUp } = await import("../server/warm-up.ts");
    await warmUp(serverInMemory(this.#router, platform.clock), configuration.credentials.tls);
  }

  /**
   * Runs once, in memory, what a node calls after a restore: otherwise V8 would compile it in each clone. Never
   * rejects.
   *
   * @param harmless makes what changes nothing, over a server that has only connections in memory
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

  /** Ends every management connection but one. Returns how many it ended. */
  dropOtherConnections(keep: Connection): number {
    return this.#management?.dropOtherConnections(keep) ?? 0;
  }

  /** Answers new management calls but Exec with this error from now on; those in progress go on. */
  refuseCalls(error: AgentError): void {
    this.#refusal ??= error;
  }

  /** Closes everything; calls that are still in progress have `graceMs` to end. */
  async close(graceMs: number): Promise<void> {
    await this.#management?.shutdown(graceMs);
  }
}
