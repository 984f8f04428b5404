import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { describe, test } from "node:test";
import { writeInTurns } from "../../../src/agent/http2/write-in-turns.ts";

const TURN_BYTES = 16 * 1024;

describe("writes in turns", () => {
  for (const bytes of [1, TURN_BYTES, TURN_BYTES + 1, 5 * TURN_BYTES - 1])
    test(`${bytes} bytes are written in order, one piece after another`, async () => {
      const expected = Buffer.alloc(bytes, "0123456789a");
      const pieces: Buffer[] = [];
      let isWriting = false;
      const socket = new Duplex({
        read: () => {},
        write: (piece: Buffer, _encoding, done) => {
          assert.ok(!isWriting && socket.writableLength === piece.length, "one piece at a time");
          assert.ok(piece.length <= TURN_BYTES, `a piece of ${piece.length} bytes`);
          pieces.push(piece);
          isWriting = true;
          setImmediate(() => {
            isWriting = false;
            done();
          });
        },
      });
      await new Promise<void>((resolve) => writeInTurns(socket, expected, TURN_BYTES, resolve));
      assert.ok(Buffer.concat(pieces).equals(expected));
      assert.equal(pieces.length, Math.ceil(bytes / TURN_BYTES));
    });
});
