import { type ServiceError, status } from "@grpc/grpc-js";
import type { ErrorCode } from "./error-codes.ts";

/*
 * What grpc-js, Node and OpenSSL say only in words, read in this one file: grpc-js 1.14.7, Node 20.19 to 26.10 (OpenSSL
 * 3.0 to 3.5), and what agents before 0.3.0 say in a GOAWAY. Each pattern is anchored: a name of the caller's may stand
 * in the text.
 */

/** Why a connection or a call failed. */
export interface Cause {
  readonly code: ErrorCode;
  readonly message: string;
}

/** How OpenSSL (3.0 in Node 20.19, 3.5 in Node 22.23 and 26.10) begins the text of an alert that the peer has sent. */
const ALERT = String.raw`^[\dA-F]+:error:[\dA-F]+:SSL routines:\w*:\S* alert `;

/** Texts of failed connections, in the order in which they are tried. */
const CAUSES: readonly (readonly [pattern: RegExp, code: ErrorCode])[] = [
  [/^connect (?:ECONNREFUSED|ENOENT|EACCES) /, "CONNECTION_REFUSED"],
  [/^(?:connect E[A-Z]+ |getaddrinfo |queryA|Name resolution failed )/, "ADDRESS_UNREACHABLE"],
  [/^(?:Connection dropped|read E[A-Z]+|write E[A-Z]+)/, "CONNECTION_LOST"],
  [/^(?:Failed to connect \(|Client network socket disconnected before secure TLS)/, "CONNECTION_CLOSED"],
  // What is no HTTP/2, as nghttp2 reports it.
  [/^(?:Protocol error|Session closed with error code NGHTTP2_PROTOCOL_ERROR)/, "NOT_AN_AGENT"],
  [/^Hostname\/IP does not match certificate's altnames/, "SERVER_NAME_MISMATCH"],
  [/^certificate has expired/, "SERVER_CERTIFICATE_EXPIRED"],
  [/^certificate is not yet valid/, "SERVER_CERTIFICATE_NOT_YET_VALID"],
  // OpenSSL's answer to a Certificate message that is too large, or has too many certificates.
  [new RegExp(`${ALERT}(?:illegal parameter|decode error):`), "CLIENT_CERTIFICATE_TOO_LONG"],
  [/^[a-z -]*certificate\b/, "SERVER_CERTIFICATE_UNTRUSTED"],
  [/^(?:(?:\w+:)*SSL routines|SSL |wrong version)/, "NOT_AN_AGENT"],
];

/** The cause of a failed connection by its text. */
export function causeOf(text: string): Cause | undefined {
  const refusal = refusedCertificate(text);
  if (refusal !== undefined) return refusal;
  const code = CAUSES.find(([pattern]) => pattern.test(unwrapped(text)))?.[1];
  return code && { code, message: withoutNoise(text) };
}

/** Removes what grpc-js wraps around the reason of a failed connection. */
function unwrapped(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, "")
    .replace(/\.?\s*Resolution note: $/, "")
    .replace(/^Error(?: \[\w+\])?: /, "")
    .trim();
}

/** The same, and OpenSSL's and grpc-js's own texts in words. */
export function withoutNoise(details: string): string {
  return unwrapped(details)
    .replace(/^[\dA-F]+:error:[\dA-F]+:SSL routines:\w*:([^:]+):.*$/s, "the TLS handshake failed: SSL $1")
    .replace(/^Protocol error \(.*\)$/, "what answers there does not speak HTTP/2")
    .replace(/^Client network socket disconnected before secure TLS.*$/s, "the connection was closed in its handshake")
    .replace(/^Failed to connect \(.*\)$/, "the connection was closed before it was ready");
}

/** The agent's alerts about a client certificate (RFC 8446, 6.2), as OpenSSL names them. */
const CERTIFICATE_ALERT = new RegExp(
  `${ALERT}(unknown ca|bad certificate|unsupported certificate|certificate (?:expired|revoked|unknown|required)):`,
);
const ALERT_WORDS: ReadonlyMap<string, string> = new Map([
  ["unknown ca", "it is not of the agent's authority"],
  ["certificate expired", "it or its authority has expired, by the guest's clock"],
  ["unsupported certificate", "it is not for clients"],
  ["certificate required", "there is none"],
]);

/** Why the agent refused the client's certificate, by its alert; undefined: a different error. */
function refusedCertificate(details: string): Cause | undefined {
  const alert = CERTIFICATE_ALERT.exec(unwrapped(details))?.[1];
  if (alert === undefined) return undefined;
  const message = `the agent refused your client certificate: ${ALERT_WORDS.get(alert) ?? "it is not valid"} (TLS alert ${alert})`;
  return {
    code: alert === "certificate expired" ? "CLIENT_CERTIFICATE_EXPIRED" : "CLIENT_CERTIFICATE_REFUSED",
    message,
  };
}

/** How agents before 0.3.0 begin, whose handshake had no alert; OpenSSL's reason follows. */
const CERTIFICATE_REFUSED = "the client certificate is refused: ";

/** The agent's own words about a refused connection: debug data of its GOAWAY (RFC 9113, 6.8). */
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

/** The agent's GOAWAY for a refused certificate, INADEQUATE_SECURITY (12), as grpc-js and Node report it. */
export function isRefusedConnection({ details }: ServiceError): boolean {
  return details === "Protocol not secure enough" || details.endsWith("Session closed with error code 12");
}

const UNCONNECTED = /^Deadline exceeded after [^,]+,(?:.*,)?(?:Waiting for LB pick|waiting for name resolution)$/;

/** The call waited for a connection until its deadline (grpc-js 1.14, resolving-call.ts and load-balancing-call.ts). */
export function isUnconnected({ code, details }: ServiceError): boolean {
  return code === status.DEADLINE_EXCEEDED && UNCONNECTED.test(details);
}

/**
 * The call waited for a connection and was never sent (grpc-js 1.14, picker.ts and resolver-dns.ts). Of a connection
 * that was there and broke, grpc-js says something else, whatever the next attempt to connect comes to.
 */
export function isUnsent(error: ServiceError): boolean {
  const isPicked =
    error.code === status.UNAVAILABLE && /^(?:No connection established|Name resolution failed)/.test(error.details);
  return isPicked || isUnconnected(error);
}

/** grpc-js gives UNIMPLEMENTED also to answers that are not gRPC. */
export function isNoAnswer({ details }: ServiceError): boolean {
  return /^(?:No message received|Too many responses received|Received HTTP status code)/.test(details);
}

/** A connection that was closed in its handshake: grpc-js (1.14, transport.ts) knows no reason. */
export function isClosedUnready({ code, details }: ServiceError): boolean {
  return code === status.UNAVAILABLE && unwrapped(details).startsWith("Failed to connect (");
}
