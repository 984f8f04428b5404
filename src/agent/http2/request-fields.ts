/** Fields of a request by name, including pseudo-header fields. Repeated fields are joined with ", ". Immutable. */
export type RequestFields = Readonly<Record<string, string | undefined>>;

/** Fields that are only valid in HTTP/1 (RFC 9113, 8.2.2). */
const CONNECTION_FIELDS: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "transfer-encoding",
  "upgrade",
]);
const PSEUDO_FIELDS: ReadonlySet<string> = new Set([":method", ":scheme", ":path", ":authority"]);
/** A token (RFC 9110, 5.6.2) in lower case. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;
/** A field value has no NUL, CR or LF, and no leading or trailing whitespace (RFC 9113, 8.2.1). */
const VALUE = /^(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?$/;
/**
 * A Content-Length (RFC 9110, 8.6). It has at most 15 digits, so that a JavaScript number represents it exactly; no
 * real body is larger.
 */
const LENGTH = /^\d{1,15}$/;

/** Validates request fields, given as alternating names and values. Returns undefined if they are malformed. */
export function requestFields(list: readonly string[]): RequestFields | undefined {
  const fields: Record<string, string | undefined> = Object.create(null) as Record<string, string | undefined>;
  let pseudo = true;
  for (let at = 0; at < list.length; at += 2) {
    const name = list[at] as string;
    const value = list[at + 1] as string;
    if (name.startsWith(":")) {
      if (!pseudo || !PSEUDO_FIELDS.has(name) || fields[name] !== undefined || !VALUE.test(value)) return undefined;
      fields[name] = value;
      continue;
    }
    pseudo = false;
    if (!isRegular(name, value)) return undefined;
    const before = fields[name];
    fields[name] = before === undefined ? value : `${before}${name === "cookie" ? "; " : ", "}${value}`;
  }
  return isRequest(fields) ? fields : undefined;
}

/** Whether the fields are valid trailers (RFC 9113, 8.1). */
export function areTrailers(list: readonly string[]): boolean {
  for (let at = 0; at < list.length; at += 2) if (!isRegular(list[at] as string, list[at + 1] as string)) return false;
  return true;
}

/** Value of content-length; undefined if it is missing. */
export function contentLength(fields: RequestFields): number | undefined {
  const value = fields["content-length"];
  return value === undefined ? undefined : Number(value);
}

function isRegular(name: string, value: string): boolean {
  if (!NAME.test(name) || !VALUE.test(value) || CONNECTION_FIELDS.has(name)) return false;
  return name !== "te" || value === "trailers";
}

/** Whether the pseudo-header fields are those of a request (RFC 9113, 8.3.1, and 8.5 for CONNECT). */
function isRequest(fields: RequestFields): boolean {
  const length = fields["content-length"];
  if (length !== undefined && !LENGTH.test(length)) return false;
  if (fields[":method"] === "CONNECT") return fields[":scheme"] === undefined && fields[":path"] === undefined;
  return Boolean(fields[":method"]) && Boolean(fields[":scheme"]) && Boolean(fields[":path"]);
}
