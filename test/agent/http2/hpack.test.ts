import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { HpackDecoder, HpackEncoder } from "../../../src/agent/http2/hpack.ts";
import { ConnectionError, ErrorCode } from "../../../src/agent/http2/protocol.ts";
import { type Field, VECTORS } from "./hpack-vectors.ts";

const LIST_LIMIT_BYTES = 16 * 1024;
const FIRST_DYNAMIC = 62;

describe("the decoder of header blocks", () => {
  for (const { name, tableLimitBytes, blocks } of VECTORS.examples) {
    test(`reads the RFC's example ${name}, and has its table afterwards`, () => {
      const decoder = new HpackDecoder(LIST_LIMIT_BYTES, tableLimitBytes);
      for (const { block, fields, table } of blocks) {
        assert.deepEqual(decode(decoder, block), fields);
        assert.deepEqual(dynamicTable(decoder), table);
      }
    });
  }

  test("knows the static table", () => {
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    for (const [index, field] of VECTORS.staticTable.entries()) {
      assert.deepEqual(pairs(decoder.decode(Buffer.of(0x80 | (index + 1)))), [field]);
    }
  });

  test("reads every Huffman code", () => {
    for (const { text, code } of VECTORS.huffmanTexts) {
      const bytes = Buffer.from(code, "hex");
      const block = Buffer.concat([Buffer.of(0, 1), Buffer.from("x"), stringHead(bytes.length), bytes]);
      assert.deepEqual(pairs(new HpackDecoder(LIST_LIMIT_BYTES).decode(block)), [["x", text]]);
    }
  });

  test("refuses what is malformed with COMPRESSION_ERROR, and says what it is", () => {
    for (const { what, block } of VECTORS.invalidBlocks) {
      assert.throws(
        () => new HpackDecoder(LIST_LIMIT_BYTES).decode(Buffer.from(block, "hex")),
        (error) => {
          assert.ok(error instanceof ConnectionError, what);
          assert.equal(error.code, ErrorCode.COMPRESSION_ERROR, what);
          assert.match(error.message, /^the header block is malformed: /, what);
          return true;
        },
        what,
      );
    }
  });

  test("keeps nothing of a list over the limit, but reads it to its end for the table's sake", () => {
    const decoder = new HpackDecoder(100);
    const large = literal(0x40, "name", "x".repeat(64));
    const block = Buffer.concat([large, large, literal(0x40, "last", "value")]);
    assert.equal(decoder.decode(block), undefined);
    assert.deepEqual(dynamicTable(decoder).slice(0, 1), [["last", "value"]]);
  });

  test("has another version whenever a block of the same bytes may mean something else", () => {
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    const before = decoder.version;
    decoder.decode(Buffer.of(0x82, 0x86));
    decoder.decode(literal(0x00, "name", "not indexed"));
    assert.equal(decoder.version, before);
    decoder.decode(literal(0x40, "name", "indexed"));
    assert.notEqual(decoder.version, before);
  });
});

describe("the encoder of header blocks", () => {
  test("is understood by the decoder, and says what repeats in one byte a field", () => {
    const encoder = new HpackEncoder();
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    const fields = { ":status": "200", "content-type": "application/grpc+proto", "svc-agent-version": "0.1.0" };
    const first = Buffer.from(encoder.encode(fields));
    assert.deepEqual(pairs(decoder.decode(first)), Object.entries(fields));
    const second = Buffer.from(encoder.encode(fields));
    assert.equal(second.length, 3);
    assert.deepEqual(pairs(decoder.decode(second)), Object.entries(fields));
  });

  test("keeps what is said once out of the table, whatever its length", () => {
    const encoder = new HpackEncoder();
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    for (let count = 0; count < 500; count++) {
      const fields = { "grpc-status": "5", "grpc-message": `no ${count}`, "x-long": `${count}${"x".repeat(5_000)}` };
      assert.deepEqual(pairs(decoder.decode(Buffer.from(encoder.encode(fields)))), Object.entries(fields));
    }
    assert.deepEqual(dynamicTable(decoder), [["grpc-status", "5"]]);
  });

  test("evicts as the decoder does, field by field", () => {
    const encoder = new HpackEncoder();
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    for (let count = 0; count < 1_000; count++) {
      const fields = { [`name-${count % 150}`]: "value", [`other-${count % 7}`]: String(count % 11) };
      assert.deepEqual(pairs(decoder.decode(Buffer.from(encoder.encode(fields)))), Object.entries(fields));
    }
  });

  test("uses no larger table than the peer has, and says so first", () => {
    const encoder = new HpackEncoder();
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    const fields = { "content-type": "application/grpc+proto" };
    decoder.decode(Buffer.from(encoder.encode(fields)));
    encoder.limitTable(0);
    const block = Buffer.from(encoder.encode(fields));
    assert.equal(block[0], 0x20);
    assert.deepEqual(pairs(decoder.decode(block)), Object.entries(fields));
    assert.deepEqual(dynamicTable(decoder), []);
  });

  test("says the smallest table of several since the last block, and the last one", () => {
    const encoder = new HpackEncoder();
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    const fields = { "content-type": "application/grpc+proto" };
    decoder.decode(Buffer.from(encoder.encode(fields)));
    for (const limitBytes of [100, 0, 30, 4_096]) encoder.limitTable(limitBytes);
    const block = Buffer.from(encoder.encode(fields));
    assert.equal(block.subarray(0, 4).toString("hex"), "203fe11f");
    assert.deepEqual(pairs(decoder.decode(block)), Object.entries(fields));
    assert.deepEqual(dynamicTable(decoder), Object.entries(fields), "the earlier one was evicted");
  });

  test("writes integers as the RFC does", () => {
    for (const { value, prefixBits, bytes } of VECTORS.integers) {
      if (prefixBits !== 7) continue;
      const block = new HpackEncoder().encode({ x: "y".repeat(value) });
      assert.equal(block.subarray(3, 3 + bytes.length / 2).toString("hex"), bytes);
    }
  });
});

function decode(decoder: HpackDecoder, block: string): Field[] {
  return pairs(decoder.decode(Buffer.from(block.replaceAll(/\s/g, ""), "hex")));
}

function pairs(list: readonly string[] | undefined): Field[] {
  assert.ok(list !== undefined);
  return Array.from({ length: list.length / 2 }, (_, at) => [list[2 * at] ?? "", list[2 * at + 1] ?? ""] as const);
}

/** Reads every index that exists. */
function dynamicTable(decoder: HpackDecoder): Field[] {
  const entries: Field[] = [];
  for (let index = FIRST_DYNAMIC; ; index++) {
    try {
      entries.push(...pairs(decoder.decode(Buffer.of(0x80 | index))));
    } catch {
      return entries;
    }
  }
}

function literal(kind: number, name: string, value: string): Buffer {
  const text = (of: string): Buffer => Buffer.concat([Buffer.of(of.length), Buffer.from(of)]);
  return Buffer.concat([Buffer.of(kind), text(name), text(value)]);
}

function stringHead(length: number): Buffer {
  return length < 0x7f ? Buffer.of(0x80 | length) : Buffer.of(0xff, (length - 0x7f) | 0x80, (length - 0x7f) >> 7);
}
