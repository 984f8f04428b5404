import { randomBytes } from "node:crypto";
import { createSecureServer, createServer, type Http2SecureServer } from "node:http2";
import { AgentError, type Clock, type Log } from "../domain/index.ts";
import type { Interceptor, Router, Session } from "../rpc/index.ts";
import { Http2Listener, http2Options, type VerifyPeer } from "./http2-listener.ts";
import { DEFAULT_SERVER_LIMITS, type ServerLimits } from "./limits.ts";
import { listenTcp } from "./tcp-port.ts";
import { secureContextOptions, type TlsMaterial, tlsOptions } from "./tls.ts";
import { listenUnix } from "./unix-socket.ts";

/** Size of the keys that Node's setTicketKeys takes. */
const TICKET_KEY_BYTES = 48;
/** How long the last answers may take to reach their clients once the grace has passed. */
const FLUSH_MS = 200;

/** What the management server is made of. */
export interface ManagementServerOptions {
  readonly router: Router;
  /** Asked before every call (see tokenAuthenticator). */
  readonly authenticate: Interceptor;
  /** Further check of a client certificate that the authority vouches for. */
  readonly verifyPeer?: VerifyPeer;
  readonly log: Log;
  readonly clock: Clock;
  readonly limits?: Partial<ServerLimits>;
}

/** Serves GuestAgent to the node agent: over TCP with mutual TLS, over a unix socket, or both. */
export class ManagementServer {
  readonly #options: ManagementServerOptions;
  readonly #limits: ServerLimits;
  readonly #listeners: Http2Listener[] = [];
  #secure: Http2SecureServer | undefined;
  #sessions = 0;
  #shutdown: Promise<void> | undefined;

  constructor(options: ManagementServerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  }

  /** Listens on a TCP port with mutual TLS; 0: any free port. Returns the port. Throws AgentError when it cannot. */
  async listenTcp(port: number, tls: TlsMaterial): Promise<number> {
    const secure = createSecureServer({
      ...http2Options(this.#limits),
      ...tlsOptions(tls, this.#limits.handshakeTimeoutMs),
    });
    const bound = await listenTcp(this.#addListener(secure, "tcp").acceptor, port);
    this.#secure = secure;
    return bound;
  }

  /** Listens on a unix socket, without TLS. Throws AgentError when it cannot. */
  async listenUnix(path: string, mode = 0o600): Promise<void> {
    const listener = this.#addListener(createServer(http2Options(this.#limits)), "unix");
    await listenUnix(listener.acceptor, path, mode);
  }

  /** Connections from now on use these credentials; those that are open stay. */
  setCredentials(tls: TlsMaterial): void {
    this.#secure?.setSecureContext(secureContextOptions(tls));
  }

  /** The open sessions of all listeners. */
  sessions(): readonly Session[] {
    return this.#listeners.flatMap((listener) => listener.sessions.list());
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
   * after `graceMs` are aborted with the same status. Resolves when no connection is left.
   */
  shutdown(graceMs: number): Promise<void> {
    this.#shutdown ??= this.#end(graceMs);
    return this.#shutdown;
  }

  async #end(graceMs: number): Promise<void> {
    for (const listener of this.#listeners) listener.stopAccepting();
    const closed = Promise.all(this.#listeners.map((listener) => listener.sessions.close()));
    const abort = setTimeout(() => this.#options.router.abortCalls(shuttingDown()), graceMs);
    const destroy = setTimeout(() => {
      for (const listener of this.#listeners) listener.sessions.destroy();
    }, graceMs + FLUSH_MS);
    await closed;
    clearTimeout(abort);
    clearTimeout(destroy);
  }

  #addListener(http2: ConstructorParameters<typeof Http2Listener>[0], name: string): Http2Listener {
    const { router, authenticate, verifyPeer, log, clock } = this.#options;
    const interceptor: Interceptor = (metadata) =>
      this.#shutdown === undefined ? authenticate(metadata) : shuttingDown();
    const listener = new Http2Listener(http2, {
      name,
      router,
      interceptor,
      verifyPeer,
      log,
      clock,
      limits: this.#limits,
      nextSessionId: () => ++this.#sessions,
    });
    this.#listeners.push(listener);
    return listener;
  }
}

function shuttingDown(): AgentError {
  return new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");
}
