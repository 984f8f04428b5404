import { Readable } from "node:stream";
import * as zlib from "node:zlib";
import { messageOf } from "../../../shared/errors.ts";
import { CliError } from "../cli/index.ts";

/** Creates a zstd decompressor. Undefined in Node before 22.15. */
const createZstdDecompress = Reflect.get(zlib, "createZstdDecompress") as (() => NodeJS.ReadWriteStream) | undefined;

/** The first bytes of each compressed format, and what decompresses it: Node, or a command that the user must run. */
const FORMATS: readonly {
  readonly name: string;
  readonly magic: readonly number[];
  readonly unpack: string | (() => NodeJS.ReadWriteStream);
}[] = [
  { name: "gzip", magic: [0x1f, 0x8b], unpack: zlib.createGunzip },
  { name: "zstd", magic: [0x28, 0xb5, 0x2f, 0xfd], unpack: createZstdDecompress ?? "zstd -dc" },
  { name: "bzip2", magic: [0x42, 0x5a, 0x68], unpack: "bzip2 -dc" },
  { name: "xz", magic: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00], unpack: "xz -dc" },
  { name: "lz4", magic: [0x04, 0x22, 0x4d, 0x18], unpack: "lz4 -dc" },
];
const MAGIC_BYTES = 6;

/**
 * Yields a tar archive, decompressed if necessary. The first bytes distinguish the formats: an uncompressed archive
 * begins with a file name. Throws CliError for a compression that Node cannot decompress.
 */
export async function* decompressed(input: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const source = input[Symbol.asyncIterator]();
  const chunks: Uint8Array[] = [];
  let isOver = false;
  for (let bytes = 0; bytes < MAGIC_BYTES && !isOver;) {
    const next = await source.next();
    if (next.done === true) isOver = true;
    else {
      chunks.push(next.value);
      bytes += next.value.length;
    }
  }
  async function* whole(): AsyncGenerator<Uint8Array> {
    yield* chunks;
    if (!isOver) yield* { [Symbol.asyncIterator]: () => source };
  }
  const head = Buffer.concat(chunks).subarray(0, MAGIC_BYTES);
  const format = FORMATS.find(({ magic }) => head.subarray(0, magic.length).equals(Buffer.from(magic)));
  if (format === undefined) {
    yield* whole();
    return;
  }
  const { name, unpack } = format;
  if (typeof unpack === "string")
    throw new CliError(`standard input is compressed with ${name}; unpack it first: ${unpack} FILE | guestctl cp - …`);
  const compressed = Readable.from(whole());
  const unpacked = unpack();
  // Forward the error, because `pipe` does not.
  compressed.on("error", (error) => unpacked.emit("error", error));
  compressed.pipe(unpacked);
  try {
    for await (const bytes of unpacked) yield bytes as Uint8Array;
  } catch (error) {
    throw new CliError(`standard input cannot be unpacked with ${name}: ${messageOf(error)}`);
  } finally {
    compressed.destroy();
  }
}
