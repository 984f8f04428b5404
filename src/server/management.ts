import { randomBytes } from "node:crypto";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import { AgentError, type Clock, type Log, type WatchArrivals } from "../domain/index.ts";
import type { Interceptor, Router, Session } from "../rpc/index.ts";
import { DEFAULT_SERVER_LIMITS, Listener, type ServerLimits } from "./listener.ts";
import { isVouchedFor, secureContextOptions, type TlsMaterial, tlsOptions, type VerifyPeer } from "./tls.ts";
import { listenTcp, listenUnix } from "./listen.ts";

/** Size of the keys that Node's setTicketKeys takes. */
const TICKET_KEY_BYTES = 48;

/** What the management server is made of. */
export interface ManagementServerOptions {
  readonly router: Router;
  /** Asked before every call (see tokenAuthenticator). */
  readonly authenticate: Interceptor;
  /** Further check of a client certificate that the authority vouches for. */
  readonly verifyPeer?: VerifyPeer;
  /** Told of every connection that is accepted. */
  readonly onConnection?: () => void;
  readonly log: Log;
  readonly clock: Clock;
  /** Undefined: connections that are lost for want of descriptors are not told of. */
  readonly watchArrivals?: WatchArrivals;
  readonly limits?: Partial<ServerLimits>;
}

/** Serves GuestAgent to the node agent: over TCP with mutual TLS, over a unix socket, or both. */
export class ManagementServer {
  readonly #options: ManagementServerOptions;
  readonly #limits: ServerLimits;
  readonly #listeners: Listener[] = [];
  #secure: TlsServer | undefined;
  /** The credentials that have taken the place of the first ones. */
  #renewed: TlsMaterial | undefined;
  #removeSocket: (() => void) | undefined;
  #sessions = 0;
  #shutdown: Promise<void> | undefined;

  constructor(options: ManagementServerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  }

  /** Listens on a TCP port with mutual TLS; 0: any free port. Returns the port. Throws AgentError when it cannot. */
  async listenTcp(port: number, tls: TlsMaterial): Promise<number> {
    const secure = createTlsServer(tlsOptions(tls, this.#limits.handshakeTimeoutMs));
    const bound = await listenTcp(this.#addListener(secure, "tcp").acceptor, port);
    this.#secure = secure;
    return bound;
  }

  /** Listens on a unix socket, without TLS. Throws AgentError when it cannot. */
  async listenUnix(path: string, mode = 0o600): Promise<void> {
    const listener = this.#addListener(undefined, "unix");
    this.#removeSocket = await listenUnix(listener.acceptor, path, mode);
  }

  /**
   * Connections from now on use these credentials. Those that are open stay, but for those of an authority that is no
   * longer one: they take no new calls, and are gone within five seconds.
   */
  setCredentials(tls: TlsMaterial): void {
    this.#secure?.setSecureContext(secureContextOptions(tls));
    this.#renewed = tls;
    for (const listener of this.#listeners) {
      const ended = listener.endOf(
        ({ certificate }) => certificate !== undefined && !isVouchedFor(certificate.chain, tls),
        (sessions) => this.#options.router.abortCalls(authorityReplaced(), sessions),
      );
      if (ended > 0) this.#options.log.info("sessions_of_replaced_authority", { sessions: ended });
    }
  }

  /** The open sessions of all listeners. */
  sessions(): readonly Session[] {
    return this.#listeners.flatMap((listener) => listener.sessions());
  }

  /** Open sockets of all listeners, in whatever state. */
  get sockets(): number {
    return this.#listeners.reduce((sum, listener) => sum + listener.sockets, 0);
  }

  /**
   * For a guest that has been restored: whatever was connected or half connected before shares its keys with the
   * siblings of this guest. Ends every session but the given one, which finishes its calls and takes no new ones; ends
   * half-open handshakes; makes new ticket keys. Returns how many sessions were ended.
   */
  dropOtherSessions(keep: Session | undefined): number {
    this.#secure?.setTicketKeys(randomBytes(TICKET_KEY_BYTES));
    return this.#listeners.reduce((dropped, listener) => dropped + listener.dropOthers(keep), 0);
  }

  /**
   * Accepts no more connections, refuses new calls with UNAVAILABLE, and lets running ones end; those that are left
   * after `graceMs` are aborted with the same status. Resolves when no connection is left: within 5 s of the grace's end,
   * whatever the peers do.
   */
  shutdown(graceMs: number): Promise<void> {
    this.#shutdown ??= this.#end(graceMs);
    return this.#shutdown;
  }

  async #end(graceMs: number): Promise<void> {
    for (const listener of this.#listeners) listener.stopAccepting();
    this.#removeSocket?.();
    const closed = Promise.all(this.#listeners.map((listener) => listener.close()));
    const abort = setTimeout(() => {
      this.#options.router.abortCalls(shuttingDown());
      for (const listener of this.#listeners) listener.closeNow();
    }, graceMs);
    await closed;
    clearTimeout(abort);
  }

  #addListener(secure: TlsServer | undefined, name: string): Listener {
    const { router, authenticate, verifyPeer, onConnection, log, clock, watchArrivals } = this.#options;
    const interceptor: Interceptor = (metadata) =>
      this.#shutdown === undefined ? authenticate(metadata) : shuttingDown();
    const listener = new Listener({
      name,
      secure,
      router,
      interceptor,
      // A handshake may have begun under credentials that were replaced before it was over.
      verifyPeer: (certificate, nowMs) =>
        this.#renewed === undefined || isVouchedFor(certificate.chain, this.#renewed)
          ? verifyPeer?.(certificate, nowMs)
          : "the authority of its certificate has been replaced",
      log,
      clock,
      watchArrivals,
      limits: this.#limits,
      nextSessionId: () => ++this.#sessions,
    });
    if (onConnection !== undefined) listener.acceptor.on("connection", onConnection);
    this.#listeners.push(listener);
    return listener;
  }
}

function authorityReplaced(): AgentError {
  const message = "the authority of the client certificate has been replaced; dial with one of the new authority";
  return new AgentError("UNAVAILABLE", "AUTHORITY_REPLACED", message);
}

function shuttingDown(): AgentError {
  return new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");
}
