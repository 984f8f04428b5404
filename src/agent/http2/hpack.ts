import { decodeHuffman } from "./huffman.ts";
import { ConnectionError, ErrorCode } from "./protocol.ts";

/** Size limit of each dynamic table: the protocol's default. A higher limit of the peer is not used. */
const TABLE_LIMIT_BYTES = 4_096;
/** Overhead per entry (RFC 7541, 4.1). */
const ENTRY_OVERHEAD_BYTES = 32;

/** The static table of RFC 7541, Appendix A. Index 1 is the first entry. */
const STATIC_TABLE: readonly (readonly [name: string, value: string])[] = [
  ["", ""],
  [":authority", ""],
  [":method", "GET"],
  [":method", "POST"],
  [":path", "/"],
  [":path", "/index.html"],
  [":scheme", "http"],
  [":scheme", "https"],
  [":status", "200"],
  [":status", "204"],
  [":status", "206"],
  [":status", "304"],
  [":status", "400"],
  [":status", "404"],
  [":status", "500"],
  ["accept-charset", ""],
  ["accept-encoding", "gzip, deflate"],
  ["accept-language", ""],
  ["accept-ranges", ""],
  ["accept", ""],
  ["access-control-allow-origin", ""],
  ["age", ""],
  ["allow", ""],
  ["authorization", ""],
  ["cache-control", ""],
  ["content-disposition", ""],
  ["content-encoding", ""],
  ["content-language", ""],
  ["content-length", ""],
  ["content-location", ""],
  ["content-range", ""],
  ["content-type", ""],
  ["cookie", ""],
  ["date", ""],
  ["etag", ""],
  ["expect", ""],
  ["expires", ""],
  ["from", ""],
  ["host", ""],
  ["if-match", ""],
  ["if-modified-since", ""],
  ["if-none-match", ""],
  ["if-range", ""],
  ["if-unmodified-since", ""],
  ["last-modified", ""],
  ["link", ""],
  ["location", ""],
  ["max-forwards", ""],
  ["proxy-authenticate", ""],
  ["proxy-authorization", ""],
  ["range", ""],
  ["referer", ""],
  ["refresh", ""],
  ["retry-after", ""],
  ["server", ""],
  ["set-cookie", ""],
  ["strict-transport-security", ""],
  ["transfer-encoding", ""],
  ["user-agent", ""],
  ["vary", ""],
  ["via", ""],
  ["www-authenticate", ""],
];
const FIRST_DYNAMIC = STATIC_TABLE.length;

/**
 * A table entry. For a secret field, `value` is the text that replaces the secret, but `sizeBytes` is computed with the
 * secret itself.
 */
type Entry = readonly [name: string, value: string, sizeBytes?: number];

function sizeOf([name, value, sizeBytes]: Entry): number {
  return sizeBytes ?? name.length + value.length + ENTRY_OVERHEAD_BYTES;
}

/**
 * A header field with a secret value. Tables and request fields contain the result of `conceal` instead of the value.
 * The value is overwritten in the read buffer.
 */
export interface SecretField {
  readonly name: string;
  /**
   * Returns the text that replaces the secret value: for example, a digest. The text is visible ASCII. After the call,
   * the caller overwrites the bytes of `value`.
   */
  readonly conceal: (value: Uint8Array) => string;
}

/** Dynamic table of one direction of a connection (RFC 7541, 2.3.2). */
class DynamicTable {
  /** Entries, oldest first: an insertion then moves no other entry. HPACK's indexes begin with the newest entry. */
  readonly #entries: Entry[] = [];
  #sizeBytes = 0;
  #limitBytes: number;
  inserted = 0;
  /** Changes with every insertion and eviction, because the same index may then mean another entry. */
  version = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get limitBytes(): number {
    return this.#limitBytes;
  }

  at(index: number): Entry | undefined {
    return index < FIRST_DYNAMIC
      ? STATIC_TABLE[index]
      : this.#entries[this.#entries.length - 1 - (index - FIRST_DYNAMIC)];
  }

  insert(entry: Entry): void {
    this.version++;
    this.inserted++;
    const sizeBytes = sizeOf(entry);
    this.#evict(this.#limitBytes - sizeBytes);
    if (sizeBytes > this.#limitBytes) return;
    this.#entries.push(entry);
    this.#sizeBytes += sizeBytes;
  }

  resize(limitBytes: number): void {
    this.version++;
    this.#limitBytes = limitBytes;
    this.#evict(limitBytes);
  }

  /**
   * Returns the present index of an entry, or 0 if the entry was evicted.
   *
   * @param insertion number of the entry: the first entry that was ever inserted has the number 1
   */
  indexOf(insertion: number): number {
    const age = this.inserted - insertion;
    return age < this.#entries.length ? FIRST_DYNAMIC + age : 0;
  }

  #evict(targetBytes: number): void {
    let evicted = 0;
    for (; this.#sizeBytes > targetBytes; evicted++) {
      const entry = this.#entries[evicted];
      if (entry === undefined) break;
      this.#sizeBytes -= sizeOf(entry);
    }
    if (evicted > 0) this.#entries.splice(0, evicted);
  }
}

const NO_BYTES = Buffer.alloc(0);
/** Buffer for one decoded string, shared by all connections. */
let scratch: Buffer = Buffer.allocUnsafeSlow(512);

/** Decodes the header blocks of a connection in order (RFC 7541). */
export class HpackDecoder {
  readonly #table: DynamicTable;
  readonly #tableLimitBytes: number;
  readonly #listLimitBytes: number;
  readonly #secret: SecretField | undefined;
  #block: Buffer = NO_BYTES;
  #at = 0;
  /** Encoded length of the string that was decoded last. In `#block`, this string ends at index `#at`. */
  #codedBytes = 0;

  /**
   * @param listLimitBytes limit for the decoded fields of a block. If a block exceeds the limit, its fields are
   *   dropped, but its changes to the dynamic table are still made.
   * @param tableLimitBytes limit for the dynamic table, as announced to the peer (SETTINGS_HEADER_TABLE_SIZE)
   */
  constructor(listLimitBytes: number, tableLimitBytes: number = TABLE_LIMIT_BYTES, secret?: SecretField) {
    this.#secret = secret;
    this.#listLimitBytes = listLimitBytes;
    this.#tableLimitBytes = tableLimitBytes;
    this.#table = new DynamicTable(tableLimitBytes);
  }

  /** Changes with the entries of the dynamic table. As long as it is the same, equal blocks decode to equal fields. */
  get version(): number {
    return this.#table.version;
  }

  /**
   * Decodes a block into alternating names and values; undefined if the list exceeds the limit. Throws ConnectionError
   * if the block is malformed.
   */
  decode(block: Buffer): string[] | undefined {
    this.#block = block;
    this.#at = 0;
    const fields: string[] = [];
    let sizeBytes = 0;
    while (this.#at < block.length) {
      const byte = block[this.#at] as number;
      if ((byte & 0xe0) === 0x20) {
        if (sizeBytes > 0) throw malformed("a table size update that follows a header field");
        this.#resize(this.#integer(0x1f));
        continue;
      }
      const entry = (byte & 0x80) === 0 ? this.#literal(byte) : this.#entry(this.#integer(0x7f));
      sizeBytes += sizeOf(entry);
      if (sizeBytes <= this.#listLimitBytes) fields.push(entry[0], entry[1]);
    }
    this.#block = NO_BYTES;
    return sizeBytes > this.#listLimitBytes ? undefined : fields;
  }

  #literal(byte: number): Entry {
    const indexed = (byte & 0x40) !== 0;
    const nameIndex = this.#integer(indexed ? 0x3f : 0x0f);
    const name = nameIndex === 0 ? this.#string() : this.#entry(nameIndex)[0];
    const entry: Entry = name === this.#secret?.name ? this.#concealed(this.#secret) : [name, this.#string()];
    if (indexed) this.#table.insert(entry);
    return entry;
  }

  #concealed({ name, conceal }: SecretField): Entry {
    const bytes = this.#text();
    const value = isVisible(bytes) ? conceal(bytes) : "";
    const sizeBytes = name.length + bytes.length + ENTRY_OVERHEAD_BYTES;
    bytes.fill(0);
    this.#block.fill(0, this.#at - this.#codedBytes, this.#at);
    return [name, value, sizeBytes];
  }

  #entry(index: number): Entry {
    const entry = index === 0 ? undefined : this.#table.at(index);
    if (entry === undefined) throw malformed(`no header field has the index ${index}`);
    return entry;
  }

  #resize(limitBytes: number): void {
    const mostBytes = this.#tableLimitBytes;
    if (limitBytes > mostBytes) throw malformed(`a header table of more than ${mostBytes} bytes`);
    this.#table.resize(limitBytes);
  }

  /** Decodes an integer (RFC 7541, 5.1). `mask` has the bits of the prefix. */
  #integer(mask: number): number {
    let value = (this.#block[this.#at++] as number) & mask;
    if (value < mask) return value;
    // After the prefix, at most four bytes are read. They suffice for any valid index, length or size.
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.#block[this.#at++];
      if (byte === undefined) throw malformed("a header block that ends within an integer");
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw malformed("an integer that is too large");
  }

  #string(): string {
    return this.#text().toString("latin1");
  }

  /** Decodes a string. The view is valid until the next call. */
  #text(): Buffer {
    const coded = ((this.#block[this.#at] ?? 0) & 0x80) !== 0;
    if (this.#at >= this.#block.length) throw malformed("a header block that ends where a string must begin");
    const length = this.#integer(0x7f);
    const start = this.#at;
    const end = start + length;
    if (end > this.#block.length) throw malformed("a header block that ends within a string");
    this.#at = end;
    this.#codedBytes = length;
    if (!coded) return this.#block.subarray(start, end);
    if (scratch.length < length * 2) scratch = Buffer.allocUnsafeSlow(length * 2);
    const written = decodeHuffman(this.#block, start, end, scratch);
    if (written < 0) throw malformed("a string with invalid Huffman code");
    return scratch.subarray(0, written);
  }
}

/** Whether all bytes are visible ASCII, as in every valid secret. */
function isVisible(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte > 0x20 && byte < 0x7f);
}

function malformed(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, `the header block is malformed: ${problem}`);
}

/** Header fields to send: the value of each name. */
export type Fields = Readonly<Record<string, string>>;

/** Longest value that is put into the table. Longer values rarely repeat, and would evict values that repeat. */
const INDEXED_VALUE_CHARS = 64;
/** Names of fields whose value differs each time. */
const NEVER_REPEATED: ReadonlySet<string> = new Set(["grpc-message", "grpc-status-details-bin", "date"]);

/** Encodes the header blocks of a connection in order. A repeated field is sent once and then by its index. */
export class HpackEncoder {
  readonly #table = new DynamicTable(TABLE_LIMIT_BYTES);
  /** For each field that was put into the table: the number of its insertion, from 1 (see `DynamicTable.indexOf`). */
  readonly #insertions = new Map<string, number>();
  /** Smallest table size since the last block; undefined if the size has not changed since. */
  #smallestBytes: number | undefined;
  #bytes: Buffer = Buffer.allocUnsafeSlow(256);
  #at = 0;

  /** Limits the table to the size that the peer allows. The next header block announces the change (RFC 7541, 4.2). */
  limitTable(limitBytes: number): void {
    const usedBytes = Math.min(limitBytes, TABLE_LIMIT_BYTES);
    if (usedBytes === this.#table.limitBytes) return;
    this.#table.resize(usedBytes);
    this.#smallestBytes = Math.min(this.#smallestBytes ?? usedBytes, usedBytes);
  }

  /** Encodes a block. The result is a view that the next call overwrites. Values are latin1. */
  encode(fields: Fields): Buffer {
    this.#at = 0;
    if (this.#smallestBytes !== undefined) {
      this.#reserve(16);
      // The table's limit has changed since the last block, perhaps several times. So this block begins with two
      // limits: the smallest limit since the last block, and the present limit. The smallest limit shows the peer which
      // entries were evicted (RFC 7541, 4.2). Without it, nghttp2 closes the connection.
      for (const sizeBytes of new Set([this.#smallestBytes, this.#table.limitBytes])) {
        this.#integer(0x20, 0x1f, sizeBytes);
      }
      this.#smallestBytes = undefined;
    }
    for (const name in fields) this.#field(name, fields[name] as string);
    return this.#bytes.subarray(0, this.#at);
  }

  #field(name: string, value: string): void {
    this.#reserve(name.length + value.length + 16);
    const key = `${name}\0${value}`;
    const known = STATIC_FIELDS.get(key) ?? this.#table.indexOf(this.#insertions.get(key) ?? -1);
    if (known > 0) {
      this.#integer(0x80, 0x7f, known);
      return;
    }
    const repeats = value.length <= INDEXED_VALUE_CHARS && !NEVER_REPEATED.has(name);
    const nameIndex = STATIC_NAMES.get(name) ?? 0;
    this.#integer(repeats ? 0x40 : 0x00, repeats ? 0x3f : 0x0f, nameIndex);
    if (nameIndex === 0) this.#string(name);
    this.#string(value);
    if (!repeats) return;
    this.#table.insert([name, value]);
    // `#insertions` still contains fields whose entries the table has evicted. So that `#insertions` does not grow
    // forever, it is cleared when it contains more fields than the table can hold.
    if (this.#insertions.size > TABLE_LIMIT_BYTES / ENTRY_OVERHEAD_BYTES) this.#insertions.clear();
    this.#insertions.set(key, this.#table.inserted);
  }

  #string(text: string): void {
    this.#integer(0x00, 0x7f, text.length);
    this.#at += this.#bytes.write(text, this.#at, "latin1");
  }

  #integer(flags: number, mask: number, value: number): void {
    if (value < mask) {
      this.#bytes[this.#at++] = flags | value;
      return;
    }
    this.#bytes[this.#at++] = flags | mask;
    let rest = value - mask;
    for (; rest > 0x7f; rest >>>= 7) this.#bytes[this.#at++] = (rest & 0x7f) | 0x80;
    this.#bytes[this.#at++] = rest;
  }

  #reserve(sizeBytes: number): void {
    if (this.#at + sizeBytes <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(2 * (this.#at + sizeBytes));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
  }
}

const STATIC_FIELDS: ReadonlyMap<string, number> = new Map(
  STATIC_TABLE.map(([name, value], index) => [`${name}\0${value}`, index]),
);
const STATIC_NAMES: ReadonlyMap<string, number> = new Map(
  STATIC_TABLE.map(([name], index) => [name, index] as const).toReversed(),
);
