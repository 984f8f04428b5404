import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { checkServerIdentity, connect as connectTls, type SecureContext } from "node:tls";
import { messageOf } from "../../../shared/errors.ts";
import { settlement } from "../settlement.ts";

/** Where an agent is to be reached, and how. */
export interface Place {
  /** As the caller named it. */
  readonly address: string;
  readonly to: { readonly host: string; readonly port: number } | { readonly path: string };
  /** Undefined: without TLS. */
  readonly tls?: { readonly context: SecureContext; readonly serverName: string };
}

/**
 * Connects once more, and says why that fails: grpc-js reports neither the reason in the agent's GOAWAY, nor the step
 * at which a connection hangs. Undefined: an HTTP/2 server answers.
 *
 * @param limitMs time for the whole of it
 */
export function explain({ address, to, tls }: Place, limitMs: number): Promise<string | undefined> {
  const { promise, resolve } = settlement<string | undefined>();
  let hangs = `nothing answers at ${address}`;
  let connection: ClientHttp2Session | undefined;
  const raw = connectTcp(to);
  const speak = (socket: Socket): void => {
    hangs = `${address} takes the connection and then says nothing of HTTP/2`;
    connection = connectHttp2("https://agent", { createConnection: () => socket });
    connection.on("error", (error) => resolve(messageOf(error)));
    connection.on("goaway", (_code, _stream, reason?: Uint8Array) => resolve(refusal(reason)));
    // The reason follows the server's first frames.
    connection.ping(() => resolve(undefined));
  };
  raw.on("error", (error) => resolve(messageOf(error)));
  raw.on("close", () => resolve("the connection was closed before it was ready"));
  raw.on("connect", () => {
    hangs = `${address} takes the connection and then says nothing`;
    if (tls === undefined) {
      speak(raw);
      return;
    }
    const secure = connectTls({
      socket: raw,
      secureContext: tls.context,
      servername: tls.serverName,
      ALPNProtocols: ["h2"],
      checkServerIdentity: (_host, certificate) => checkServerIdentity(tls.serverName, certificate),
    });
    secure.on("error", (error) => resolve(messageOf(error)));
    secure.on("secureConnect", () => {
      if (secure.alpnProtocol === "h2") speak(secure);
      else resolve(`${address} speaks TLS, but no HTTP/2`);
    });
  });
  const late = setTimeout(() => resolve(hangs), limitMs);
  return promise.finally(() => {
    clearTimeout(late);
    connection?.destroy();
    raw.destroy();
  });
}

/** The agent's own words: debug data of its GOAWAY (RFC 9113, 6.8). */
function refusal(reason: Uint8Array | undefined): string {
  const words = Buffer.from(reason ?? []).toString("utf8");
  const [, why] = /^the client certificate is refused: (.*)$/s.exec(words) ?? [];
  if (why !== undefined) return `the agent refused your client certificate: ${why}`;
  return words === ""
    ? "the agent refused the connection without a reason"
    : `the agent refused the connection: ${words}`;
}
