import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import { AgentError, type TlsMaterial } from "../domain/index.ts";
import { type Connection, listenTcp, listenUnix } from "../listening/index.ts";
import type { Interceptor } from "../rpc/index.ts";
import { DEFAULT_SERVER_LIMITS, Listener, type ListenersOptions, type ServerLimits } from "./listener.ts";
import { isVouchedFor, secureContextOptions, tlsOptions } from "./tls.ts";

/** Options of the management server. */
export interface ManagementServerOptions extends ListenersOptions {
  /** Admits or refuses every call (see tokenAuthenticator). */
  readonly authenticate: Interceptor;
  /** Called for every accepted connection. */
  readonly onConnection?: () => void;
  readonly limits?: Partial<ServerLimits>;
}

/** Serves GuestAgent to the node agent: over TCP with mutual TLS, over a unix socket, or both. */
export class ManagementServer {
  readonly #options: ManagementServerOptions;
  readonly #limits: ServerLimits;
  readonly #listeners: Listener[] = [];
  #secure: TlsServer | undefined;
  /** Credentials that replaced the first ones. */
  #renewed: TlsMaterial | undefined;
  #removeSocket: (() => void) | undefined;
  #connections = 0;
  #shutdown: Promise<void> | undefined;

  constructor(options: ManagementServerOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  }

  /** Listens on a TCP port with mutual TLS; 0: any free port. Returns the port. Throws AgentError when it cannot. */
  async listenTcp(port: number, tls: TlsMaterial): Promise<number> {
    const secure = createTlsServer(tlsOptions(tls, this.#limits.handshakeTimeoutMs));
    const bound = await listenTcp(this.#addListener(secure, "tcp").server, port);
    this.#secure = secure;
    return bound;
  }

  /** Listens on a unix socket, without TLS. Throws AgentError when it cannot. */
  async listenUnix(path: string): Promise<void> {
    const listener = this.#addListener(undefined, "unix");
    this.#removeSocket = await listenUnix(listener.server, path, 0o600);
  }

  /**
   * Uses these credentials for new connections. Open ones stay, except for clients of an authority that was replaced:
   * they accept no new calls and end within five seconds.
   */
  setCredentials(tls: TlsMaterial): void {
    this.#secure?.setSecureContext(secureContextOptions(tls));
    this.#renewed = tls;
    for (const listener of this.#listeners) {
      const ended = listener.endOf(
        ({ certificate }) => certificate !== undefined && !isVouchedFor(certificate.chain, tls),
        (connections) => this.#options.router.abortCalls(authorityReplaced(), connections),
      );
      if (ended > 0) this.#options.log.info("connections_of_replaced_authority", { connections: ended });
    }
  }

  /** Open sockets of all listeners, in whatever state. */
  get sockets(): number {
    return this.#listeners.reduce((sum, listener) => sum + listener.sockets, 0);
  }

  /**
   * For a restored guest, whose clones have the keys of all connections and handshakes from before. Ends every
   * connection but `keep`, which finishes its calls and accepts no new ones, and ends half-open handshakes. (There are
   * no tickets: see `tlsOptions`.) Returns how many connections it ended.
   */
  dropOtherConnections(keep: Connection | undefined): number {
    return this.#listeners.reduce((dropped, listener) => dropped + listener.dropOthers(keep), 0);
  }

  /**
   * Accepts no more connections, refuses new calls with UNAVAILABLE, and lets running ones end. After `graceMs` aborts
   * the rest with the same status. Resolves when no connection is left: at most 5 s later, whatever the peers do.
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
    const { authenticate, onConnection } = this.#options;
    const interceptor: Interceptor = (metadata) =>
      this.#shutdown === undefined ? authenticate(metadata) : shuttingDown();
    const listener = new Listener({
      ...this.#options,
      name,
      secure,
      interceptor,
      isVouchedFor: ({ chain }) => this.#renewed === undefined || isVouchedFor(chain, this.#renewed),
      limits: this.#limits,
      nextConnectionId: () => ++this.#connections,
    });
    if (onConnection !== undefined) listener.server.on("connection", onConnection);
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
