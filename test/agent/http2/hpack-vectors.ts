import assert from "node:assert/strict";

/*
 * RFC 7541 as data: its static table (appendix A), its Huffman code (appendix B), its examples (appendix C), and blocks
 * that a decoder must refuse. Independent of any code: HPACK must not be tested against itself.
 */

/** A header field: its name and its value. */
export type Field = readonly [name: string, value: string];

/** A header block, and its decoded form. */
interface BlockVector {
  /** Hexadecimal. */
  readonly block: string;
  readonly fields: readonly Field[];
  /** The dynamic table afterwards, youngest entry first. */
  readonly table: readonly Field[];
}

/** Blocks that one decoder gets one after another. */
export interface VectorGroup {
  readonly name: string;
  /** SETTINGS_HEADER_TABLE_SIZE. */
  readonly tableLimitBytes: number;
  readonly blocks: readonly BlockVector[];
}

/** An integer (5.1), and its bytes where the bits before the prefix are 0. */
export interface IntegerVector {
  readonly value: number;
  readonly prefixBits: number;
  /** Hexadecimal. */
  readonly bytes: string;
}

/** Appendix A; entry 1 comes first. */
export const STATIC_TABLE: readonly Field[] = [
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

/** Appendix C.1, and the largest and least values of a prefix. */
export const INTEGERS: readonly IntegerVector[] = [
  { value: 10, prefixBits: 5, bytes: "0a" },
  { value: 1337, prefixBits: 5, bytes: "1f9a0a" },
  { value: 42, prefixBits: 8, bytes: "2a" },
  { value: 30, prefixBits: 5, bytes: "1e" },
  { value: 31, prefixBits: 5, bytes: "1f00" },
  { value: 127, prefixBits: 7, bytes: "7f00" },
  { value: 255, prefixBits: 7, bytes: "7f8001" },
];

/** What a block decodes to, and the dynamic table afterwards. */
type Decoded = Pick<BlockVector, "fields" | "table">;

const GET: readonly Field[] = [
  [":method", "GET"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "www.example.com"],
];
const AUTHORITY: Field = [":authority", "www.example.com"];
const NO_CACHE: Field = ["cache-control", "no-cache"];
const CUSTOM: Field = ["custom-key", "custom-value"];
/** Of C.3 and C.4. */
const REQUESTS: readonly Decoded[] = [
  { fields: GET, table: [AUTHORITY] },
  { fields: [...GET, NO_CACHE], table: [NO_CACHE, AUTHORITY] },
  {
    fields: [[":method", "GET"], [":scheme", "https"], [":path", "/index.html"], AUTHORITY, CUSTOM],
    table: [CUSTOM, NO_CACHE, AUTHORITY],
  },
];

const FOUND: Field = [":status", "302"];
const REDIRECT: Field = [":status", "307"];
const PRIVATE: Field = ["cache-control", "private"];
const DATE: Field = ["date", "Mon, 21 Oct 2013 20:13:21 GMT"];
const NEXT_DATE: Field = ["date", "Mon, 21 Oct 2013 20:13:22 GMT"];
const LOCATION: Field = ["location", "https://www.example.com"];
const GZIP: Field = ["content-encoding", "gzip"];
const COOKIE: Field = ["set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"];
/** Of C.5 and C.6. */
const RESPONSES: readonly Decoded[] = [
  { fields: [FOUND, PRIVATE, DATE, LOCATION], table: [LOCATION, DATE, PRIVATE, FOUND] },
  { fields: [REDIRECT, PRIVATE, DATE, LOCATION], table: [REDIRECT, LOCATION, DATE, PRIVATE] },
  { fields: [[":status", "200"], PRIVATE, NEXT_DATE, LOCATION, GZIP, COOKIE], table: [COOKIE, GZIP, NEXT_DATE] },
];

function group(name: string, tableLimitBytes: number, decoded: readonly Decoded[], ...blocks: string[]): VectorGroup {
  assert.equal(blocks.length, decoded.length);
  return { name, tableLimitBytes, blocks: decoded.map((each, at) => ({ ...each, block: blocks[at] ?? "" })) };
}

/** Appendix C.2 to C.6. */
export const EXAMPLES: readonly VectorGroup[] = [
  group(
    "C.2.1: literal with incremental indexing",
    4096,
    [{ fields: [["custom-key", "custom-header"]], table: [["custom-key", "custom-header"]] }],
    "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
  ),
  group(
    "C.2.2: literal without indexing",
    4096,
    [{ fields: [[":path", "/sample/path"]], table: [] }],
    "040c2f73616d706c652f70617468",
  ),
  group(
    "C.2.3: literal never indexed",
    4096,
    [{ fields: [["password", "secret"]], table: [] }],
    "100870617373776f726406736563726574",
  ),
  group("C.2.4: indexed field", 4096, [{ fields: [[":method", "GET"]], table: [] }], "82"),
  group(
    "C.3: requests without Huffman coding",
    4096,
    REQUESTS,
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
  ),
  group(
    "C.4: requests with Huffman coding",
    4096,
    REQUESTS,
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
  ),
  group(
    "C.5: responses without Huffman coding",
    256,
    RESPONSES,
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
    "4803333037c1c0bf",
    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
  ),
  group(
    "C.6: responses with Huffman coding",
    256,
    RESPONSES,
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
  ),
];

/** Text as Huffman code, hexadecimal; the last one is every octet from 0 to 255, as Latin-1. */
export const HUFFMAN_TEXTS: readonly { readonly text: string; readonly code: string }[] = [
  { text: "www.example.com", code: "f1e3c2e5f23a6ba0ab90f4ff" },
  { text: "no-cache", code: "a8eb10649cbf" },
  { text: "custom-key", code: "25a849e95ba97d7f" },
  { text: "custom-value", code: "25a849e95bb8e8b4bf" },
  { text: "application/grpc", code: "1d75d0620d263d4c4d6564" },
  { text: "0", code: "07" },
  { text: "/svc.guest.v1alpha1.GuestAgent/Health", code: "611dc8bcd695095fb84745738c2be2b4a84c3316a4b18ca3a133ff" },
  {
    text: Buffer.from(Array.from({ length: 256 }, (_, octet) => octet)).toString("latin1"),
    code: [
      "ffc7fffd8fffffe2fffffe3fffffe4fffffe5fffffe6fffffe7fffffe8ffffeafffffff3fffffa7fffffabffffffdfffffeb",
      "fffffecfffffedfffffeefffffefffffff0ffffff1ffffff2fffffffbfffffcffffffd3fffffd7fffffdbfffffdffffffe3f",
      "ffffe7fffffebfffffed4fe3f9ffaffcabf1febfafefe7fdfd2cbb00089969b71d79fb9f7fff20ffbff3ff50ddbd7f061c58",
      "f265cd9f469d5af66dddbf871e5f9cff7ff7fffc3ff9ffe45fff4719242cb34e6e9d68a6a3d7dac426defe3cfaf7fffbfe7f",
      "fbffdffffffcfffe6ffff4bfff9ffffa3fffd3ffff53fffd5ffffb3fffeb7fffdaffffb7ffff73fffeeffffdeffffebffffb",
      "fffffd9ffffdbfffebffffe0ffffeeffffc3ffff8bffff1ffffe4fffee7fffb1ffff97fffd9ffffcdffff9fffffbffffdaff",
      "feeffff4ffffb7fffee7fffe8ffffd3fffdeffffd5fffeeffffbdffffe1fffdfffff7fffff5ffffecffff07fff87fffe0fff",
      "f17fffedffff87ffff77fffeffffeaffff8bfffe3ffff93ffff87fffcbffff37ffff1fffff83ffffe1fffebfffe3ffff3fff",
      "ff2ffffa3ffffd9fffff17ffffc7fffff27ffffdefffffbffffff2fffff8fffffb7fff97fff8fffffe6fffffc1fffff87fff",
      "fe7fffffc5ffffe5fffe4ffff2fffffd1fffff4ffffffefffffe3fffffc9fffff97fffb3ffffcffffb7fffcdffff4ffff9ff",
      "ffd1ffffcffffeaffffafffffddffffeffffff4fffff5fffffabffffa7ffffd7fffff9bffffecfffffb7fffff3fffffe8fff",
      "ffd3fffffabfffff5fffffff7ffffecfffffdbfffffbbfffff7ffffff0fffffbbf",
    ].join(""),
  },
];

/** What a decoder with a table of 4,096 bytes must refuse with COMPRESSION_ERROR, in hexadecimal. */
export const INVALID_BLOCKS: readonly { readonly what: string; readonly block: string }[] = [
  { what: "index 0", block: "80" },
  { what: "an index beyond both tables", block: "be" },
  { what: "an index far beyond both tables", block: "ffffffffff07" },
  { what: "a literal whose name's index is beyond both tables", block: "7e0161" },
  { what: "an integer that does not end", block: "ff" },
  { what: "an integer of more than 32 bits", block: "ffffffffffffffffffff01" },
  { what: "a name that is cut off", block: "400a6375" },
  { what: "a value that is missing", block: "400161" },
  { what: "a string longer than the block", block: "40016105" },
  { what: "Huffman padding of more than seven bits", block: "000161821fff" },
  { what: "Huffman padding with zeros", block: "0001618118" },
  { what: "Huffman code of EOS", block: "00016184ffffffff" },
  { what: "a dynamic table larger than was allowed", block: "3fe21f" },
  { what: "a size of the dynamic table after a field", block: "8220" },
];
