import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { messageOf } from "../../../../shared/errors.ts";
import { type Cause, causeOf, refusalOf } from "../grpc-texts.ts";
import { deferred } from "../../deferred.ts";
import { type DirectEndpoint, startTls } from "./endpoint.ts";

/**
 * Connects once more to find out why connecting fails. grpc-js reports neither the reason in the agent's GOAWAY frame
 * nor the step at which a connection hangs. Resolves with undefined if an HTTP/2 server answers.
 *
 * @param limitMs time limit of the whole attempt
 */
export function explain({ address, to, tls }: DirectEndpoint, limitMs: number): Promise<Cause | undefined> {
  const { promise, resolve } = deferred<Cause | undefined>();
  let hangs: Cause = { code: "ADDRESS_UNREACHABLE", message: `nothing answers at ${address}` };
  const silent = (what: string): Cause => ({ code: "AGENT_SILENT", message: `${address} ${what}` });
  let connection: ClientHttp2Session | undefined;
  const raw = connectTcp(to);
  const speak = (socket: Socket): void => {
    hangs = silent("accepts the connection but does not speak HTTP/2");
    connection = connectHttp2("https://agent", { createConnection: () => socket });
    connection.on("error", (error) => resolve(failed(error)));
    connection.on("goaway", (_code, _stream, reason?: Uint8Array) =>
      resolve(refusalOf(Buffer.from(reason ?? []).toString("utf8"))),
    );
    // The ping's answer means that the agent accepts the connection, because an agent that refuses it sends its GOAWAY
    // frame first.
    connection.ping(() => resolve(undefined));
  };
  raw.on("error", (error) => resolve(failed(error)));
  raw.on("close", () =>
    resolve({ code: "CONNECTION_CLOSED", message: "the connection was closed before it was ready" }),
  );
  raw.on("connect", () => {
    hangs = silent("accepts the connection but does not answer");
    if (tls === undefined) {
      speak(raw);
      return;
    }
    const secure = startTls(raw, tls);
    secure.on("error", (error) => resolve(failed(error)));
    secure.on("secureConnect", () => {
      if (secure.alpnProtocol === "h2") speak(secure);
      else resolve({ code: "NOT_AN_AGENT", message: `${address} speaks TLS, but not HTTP/2` });
    });
  });
  const late = setTimeout(() => resolve(hangs), limitMs);
  return promise.finally(() => {
    clearTimeout(late);
    connection?.destroy();
    raw.destroy();
  });
}

function failed(error: unknown): Cause {
  const message = messageOf(error);
  return causeOf(message) ?? { code: "CONNECTION_CLOSED", message };
}
