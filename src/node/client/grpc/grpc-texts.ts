import { type ServiceError, status } from "@grpc/grpc-js";
import type { ErrorCode } from "../errors/error-codes.ts";

/*
 * Everything that grpc-js, Node and OpenSSL report only as text is matched in this file: the texts of grpc-js 1.14.7,
 * of Node 20.19 to 26.10 (OpenSSL 3.0 to 3.5), and of agents before 0.3.0 in GOAWAY frames. Every pattern is anchored,
 * because the text may contain a name that the caller has chosen.
 */

/** Why a connection or a call failed. */
export interface Cause {
  readonly code: ErrorCode;
  readonly message: string;
}

/** How OpenSSL's error text for a TLS alert from the peer begins (3.0 in Node 20.19, 3.5 in Node 22.23 and 26.10). */
const ALERT = String.raw`^[\dA-F]+:error:[\dA-F]+:SSL routines:\w*:\S* alert `;

/**
 * The texts of grpc-js 1.14 (subchannel-call.ts) for a stream that ended with REFUSED_STREAM. grpc-js uses the first
 * text if the call's first message was still waiting for HTTP/2 flow control, and otherwise the second text. The server
 * has not processed such a call: it has refused the stream, or excluded it by a GOAWAY frame (RFC 9113, 6.8 and 8.7).
 * Node also reports REFUSED_STREAM for a stream that it could not open because the connection was closing.
 */
const NOT_ACCEPTED = /^(?:Write error: Stream closed with error code NGHTTP2_REFUSED_STREAM|Stream refused by server)$/;

/** Error texts of failed connections. The first pattern that matches wins. */
const CAUSES: readonly (readonly [pattern: RegExp, code: ErrorCode])[] = [
  [/^connect (?:ECONNREFUSED|ENOENT|EACCES) /, "CONNECTION_REFUSED"],
  [/^(?:connect E[A-Z]+ |getaddrinfo |queryA|Name resolution failed )/, "ADDRESS_UNREACHABLE"],
  [/^(?:Connection dropped|read E[A-Z]+|write E[A-Z]+)/, "CONNECTION_LOST"],
  [/^(?:Failed to connect \(|Client network socket disconnected before secure TLS)/, "CONNECTION_CLOSED"],
  [NOT_ACCEPTED, "CONNECTION_CLOSED"],
  // nghttp2's error for a peer that does not speak HTTP/2.
  [/^(?:Protocol error|Session closed with error code NGHTTP2_PROTOCOL_ERROR)/, "NOT_AN_AGENT"],
  [/^Hostname\/IP does not match certificate's altnames/, "SERVER_NAME_MISMATCH"],
  [/^certificate has expired/, "SERVER_CERTIFICATE_EXPIRED"],
  [/^certificate is not yet valid/, "SERVER_CERTIFICATE_NOT_YET_VALID"],
  // The alert of an OpenSSL server for a Certificate message that is too large, or has too many certificates.
  [new RegExp(`${ALERT}(?:illegal parameter|decode error):`), "CLIENT_CERTIFICATE_TOO_LONG"],
  [/^[a-z -]*certificate\b/, "SERVER_CERTIFICATE_UNTRUSTED"],
  [/^(?:(?:\w+:)*SSL routines|SSL |wrong version)/, "NOT_AN_AGENT"],
];

/** Finds the cause of a failed connection by its error text. */
export function causeOf(text: string): Cause | undefined {
  const refusal = refusedCertificate(text);
  if (refusal !== undefined) return refusal;
  const code = CAUSES.find(([pattern]) => pattern.test(unwrapped(text)))?.[1];
  return code && { code, message: withoutNoise(text) };
}

/** Removes the words that grpc-js puts around the reason of a failed connection. */
function unwrapped(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, "")
    .replace(/\.?\s*Resolution note: $/, "")
    .replace(/^Error(?: \[\w+\])?: /, "")
    .trim();
}

/**
 * Removes the words that grpc-js puts around the reason. Also rewords texts of OpenSSL and grpc-js that users would not
 * understand.
 */
export function withoutNoise(details: string): string {
  return unwrapped(details)
    .replace(/^[\dA-F]+:error:[\dA-F]+:SSL routines:\w*:([^:]+):.*$/s, "the TLS handshake failed: SSL $1")
    .replace(/^Protocol error \(.*\)$/, "the program that answers there does not speak HTTP/2")
    .replace(
      /^Client network socket disconnected before secure TLS.*$/s,
      "the connection was closed during the handshake",
    )
    .replace(/^Failed to connect \(.*\)$/, "the connection was closed before it was ready")
    .replace(NOT_ACCEPTED, "the agent closed the connection before it accepted the call")
    .replace(DEADLINE, (whole, seconds: string) => {
      const time =
        Number(seconds) < 1 ? `${Math.round(Number(seconds) * 1_000)} ms` : `${Number(seconds).toFixed(1)} s`;
      const missing = UNCONNECTED.test(whole) ? "no connection" : "no answer from the agent";
      return `${missing} within ${time}`;
    });
}

/** The agent's TLS alerts about a client certificate (RFC 8446, 6.2), as OpenSSL names them. */
const CERTIFICATE_ALERT = new RegExp(
  `${ALERT}(unknown ca|bad certificate|unsupported certificate|certificate (?:expired|revoked|unknown|required)):`,
);
const ALERT_WORDS: ReadonlyMap<string, string> = new Map([
  ["unknown ca", "it was not issued by an authority that the agent trusts"],
  ["certificate expired", "by the guest's clock, your certificate or its authority's certificate has expired"],
  ["unsupported certificate", "it is not a client certificate"],
  ["certificate required", "there is none"],
]);

/** Why the agent refused the client's certificate, according to the TLS alert; undefined for other errors. */
function refusedCertificate(details: string): Cause | undefined {
  const alert = CERTIFICATE_ALERT.exec(unwrapped(details))?.[1];
  if (alert === undefined) return undefined;
  const message = `the agent refused your client certificate: ${ALERT_WORDS.get(alert) ?? "it is not valid"} (TLS alert ${alert})`;
  return {
    code: alert === "certificate expired" ? "CLIENT_CERTIFICATE_EXPIRED" : "CLIENT_CERTIFICATE_REFUSED",
    message,
  };
}

/**
 * Agents before 0.3.0 refused a client certificate with a GOAWAY frame instead of a TLS alert. The text in that frame
 * begins with these words; OpenSSL's reason follows.
 */
const CERTIFICATE_REFUSED = "the client certificate is refused: ";

/**
 * Finds the cause of a refused connection in the agent's text. The text is the debug data of its GOAWAY frame (RFC
 * 9113, 6.8).
 */
export function refusalOf(words: string): Cause {
  if (words.startsWith(CERTIFICATE_REFUSED)) {
    const why = words.slice(CERTIFICATE_REFUSED.length);
    const code = /\bexpired\b/.test(why) ? "CLIENT_CERTIFICATE_EXPIRED" : "CLIENT_CERTIFICATE_REFUSED";
    return { code, message: `the agent refused your client certificate: ${why}` };
  }
  const message = "the agent refused the connection";
  return {
    code: "CLIENT_CERTIFICATE_REFUSED",
    message: words === "" ? `${message} without a reason` : `${message}: ${words}`,
  };
}

/**
 * Whether the agent refused the certificate with a GOAWAY frame of the code INADEQUATE_SECURITY (12). grpc-js and Node
 * report that code with different texts.
 */
export function isRefusedConnection({ details }: ServiceError): boolean {
  return details === "Protocol not secure enough" || details.endsWith("Session closed with error code 12");
}

/**
 * Matches grpc-js's text for an expired deadline. grpc-js 1.14 appends the steps of the call, such as "LB pick: 0.018s"
 * (deadline.ts).
 */
const DEADLINE = /^Deadline exceeded after ([\d.]+)s(?:,.*)?$/s;
const UNCONNECTED = /^Deadline exceeded after [^,]+,(?:.*,)?(?:Waiting for LB pick|waiting for name resolution)$/;

/**
 * Creates the error of a call that this client has cancelled at a time limit. The error has the same text as an error
 * of grpc-js for an expired deadline (1.14, deadline.ts), so that both errors are explained in the same way.
 *
 * @param cancelled the call's error
 * @param isSent whether the call had a connection
 */
export function deadlineExceeded(cancelled: ServiceError, limitMs: number, isSent: boolean): ServiceError {
  const details = `Deadline exceeded after ${(limitMs / 1_000).toFixed(3)}s${isSent ? "" : ",Waiting for LB pick"}`;
  const code = status.DEADLINE_EXCEEDED;
  return Object.assign(new Error(details), { code, details, metadata: cancelled.metadata });
}

/**
 * Whether the call waited for a connection until its deadline (grpc-js 1.14, resolving-call.ts and
 * load-balancing-call.ts).
 */
export function isUnconnected({ code, details }: ServiceError): boolean {
  return code === status.DEADLINE_EXCEEDED && UNCONNECTED.test(details);
}

/**
 * Whether the server has certainly not processed the call. There are two such cases: the call waited for a connection
 * and was never sent (grpc-js 1.14, picker.ts and resolver-dns.ts), or the server did not accept the call. If a
 * connection breaks during a call, the server may have processed the call. grpc-js reports that with other texts, even
 * if reconnecting fails as well.
 */
export function isUnsent(error: ServiceError): boolean {
  const { code, details } = error;
  const isPicked = code === status.UNAVAILABLE && /^(?:No connection established|Name resolution failed)/.test(details);
  return isPicked || isUnconnected(error) || (code === status.UNAVAILABLE && NOT_ACCEPTED.test(details));
}

/**
 * Whether the server's answer violated the gRPC protocol. grpc-js may report such an answer as UNIMPLEMENTED, like a
 * missing method.
 */
export function isNoAnswer({ details }: ServiceError): boolean {
  return /^(?:No message received|Too many responses received|Received HTTP status code)/.test(details);
}

/** Whether the connection was closed during its handshake, for which grpc-js (1.14, transport.ts) gives no reason. */
export function isClosedUnready({ code, details }: ServiceError): boolean {
  return code === status.UNAVAILABLE && unwrapped(details).startsWith("Failed to connect (");
}
