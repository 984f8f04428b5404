import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { HpackDecoder, HpackEncoder } from "../../../src/agent/http2/hpack.ts";
import { ErrorCode } from "../../../src/agent/http2/protocol.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { callHeaders, type Field } from "../../fixtures/raw-http2.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";
import vectors from "./hpack-vectors.json" with { type: "json" };

const LIST_LIMIT_BYTES = 16 * 1024;
const FIRST_DYNAMIC = 62;
/**
 * RFC 7541 as data: its static table (appendix A), its Huffman code (appendix B), and blocks that a decoder must
 * refuse. Independent of any code: HPACK must not be tested against itself. Bytes are hexadecimal.
 */
const { huffmanTexts, invalidBlocks } = vectors;
const staticTable = vectors.staticTable as unknown as readonly Field[];

describe("the decoder of header blocks", () => {
  test("the HPACK decoder reads random header blocks encoded by nghttp2", async () => {
    const random = seededRandom(7_541);
    const word = (): string =>
      Buffer.from(Array.from({ length: 1 + random.below(90) }, () => 0x21 + random.below(94))).toString("latin1");
    let metadata: Readonly<Record<string, string | undefined>> = {};
    await using server = await startManagement((router) =>
      router.unary(GuestAgent.method.health, (_request, call) => {
        metadata = call.metadata;
        return create(HealthResponseSchema);
      }),
    );
    const { ca, client } = server.certificates;
    const session = http2.connect(`https://127.0.0.1:${server.port}`, { ca, ...client, servername: SERVER_NAME });
    const values = Array.from({ length: 40 }, word);
    for (let count = 0; count < 300; count++) {
      const fields = Object.fromEntries(
        Array.from({ length: 10 }, () => [
          `x-${random.below(60)}`,
          random.below(3) === 0 ? word() : (values[count % 40] ?? ""),
        ]),
      );
      const names = Object.keys(fields);
      const sensitive = { [http2.sensitiveHeaders]: names.slice(0, random.below(3)) };
      const stream = session.request({ ...callHeaders("Health", TEST_TOKEN), ...fields, ...sensitive });
      await once(stream.end(Buffer.alloc(5)).resume(), "close");
      assert.deepEqual(Object.fromEntries(names.map((name) => [name, metadata[name]])), fields);
    }
    session.destroy();
  });

  test("the HPACK table counts 32 extra bytes per field (RFC 7541, 4.1)", () => {
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES, 100);
    for (const length of [17, 17]) decoder.decode(literal(0x40, "a", "v".repeat(length)));
    assert.equal(dynamicTable(decoder).length, 2);
    decoder.decode(literal(0x40, "a", "v".repeat(18)));
    assert.deepEqual(dynamicTable(decoder), [["a", "v".repeat(18)]]);
  });

  test("the HPACK decoder decodes every entry of the static table", () => {
    const decoder = new HpackDecoder(LIST_LIMIT_BYTES);
    for (const [index, field] of staticTable.entries()) {
      assert.deepEqual(pairs(decoder.decode(Buffer.of(0x80 | (index + 1)))), [field]);
    }
  });

  test("the HPACK decoder reads every Huffman code", () => {
    for (const { text, code } of huffmanTexts) {
      const bytes = Buffer.from(code, "hex");
      const block = Buffer.concat([Buffer.of(0, 1), Buffer.from("x"), stringHead(bytes.length), bytes]);
      assert.deepEqual(pairs(new HpackDecoder(LIST_LIMIT_BYTES).decode(block)), [["x", text]]);
    }
  });

  test("the HPACK decoder rejects malformed blocks with COMPRESSION_ERROR and a reason", () => {
    for (const { what, block } of invalidBlocks) {
      assert.throws(
        () => new HpackDecoder(LIST_LIMIT_BYTES).decode(Buffer.from(block, "hex")),
        { code: ErrorCode.COMPRESSION_ERROR, message: /^the header block is malformed: / },
        what,
      );
    }
  });

  test("the HPACK decoder discards an oversized header list but updates its table", () => {
    const decoder = new HpackDecoder(100);
    const large = literal(0x40, "name", "x".repeat(64));
    const block = Buffer.concat([large, large, literal(0x40, "last", "value")]);
    assert.equal(decoder.decode(block), undefined);
    assert.deepEqual(dynamicTable(decoder).slice(0, 1), [["last", "value"]]);
  });

  test("the HPACK decoder's `version` counter changes exactly when its dynamic table does", () => {
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
  test("the HPACK encoder sends a repeated field in one byte", () => {
    const { says } = conversation();
    const fields = { ":status": "200", "content-type": "application/grpc+proto", "svc-agent-version": "0.1.0" };
    says(fields);
    assert.equal(says(fields).length, 3);
  });

  test("the HPACK encoder does not index fields that rarely repeat", () => {
    const { decoder, says } = conversation();
    for (let count = 0; count < 500; count++)
      says({ "grpc-status": "5", "grpc-message": `no ${count}`, "x-long": `${count}${"x".repeat(5_000)}` });
    assert.deepEqual(dynamicTable(decoder), [["grpc-status", "5"]]);
  });

  test("the HPACK encoder and decoder evict the same dynamic table entries", () => {
    const { says } = conversation();
    for (let count = 0; count < 1_000; count++)
      says({ [`name-${count % 150}`]: "value", [`other-${count % 7}`]: String(count % 11) });
  });

  const CONTENT_TYPE = { "content-type": "application/grpc+proto" };

  test("the HPACK encoder announces and respects the peer's table limit", () => {
    const { encoder, decoder, says } = conversation();
    says(CONTENT_TYPE);
    encoder.limitTable(0);
    assert.equal(says(CONTENT_TYPE)[0], 0x20);
    assert.deepEqual(dynamicTable(decoder), []);
  });

  test("after table-limit changes, the HPACK encoder announces the smallest and last limit", () => {
    const { encoder, decoder, says } = conversation();
    says(CONTENT_TYPE);
    for (const limitBytes of [100, 0, 30, 4_096]) encoder.limitTable(limitBytes);
    assert.equal(says(CONTENT_TYPE).subarray(0, 4).toString("hex"), "203fe11f");
    assert.deepEqual(dynamicTable(decoder), Object.entries(CONTENT_TYPE), "the earlier one was evicted");
  });
});

/** An encoder, and a decoder that must understand all that it says. */
function conversation() {
  const [encoder, decoder] = [new HpackEncoder(), new HpackDecoder(LIST_LIMIT_BYTES)];
  const says = (fields: Readonly<Record<string, string>>): Buffer => {
    const block = Buffer.from(encoder.encode(fields));
    assert.deepEqual(pairs(decoder.decode(block)), Object.entries(fields));
    return block;
  };
  return { encoder, decoder, says };
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
