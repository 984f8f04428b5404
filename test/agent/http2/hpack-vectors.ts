import vectors from "./hpack-vectors.json" with { type: "json" };

/*
 * RFC 7541 as data: its static table (appendix A), its Huffman code (appendix B), its examples (appendix C), and blocks
 * that a decoder must refuse. Independent of any code: HPACK must not be tested against itself. Bytes are hexadecimal.
 */

/** A header field: its name and its value. */
export type Field = readonly [name: string, value: string];

interface Vectors {
  readonly staticTable: readonly Field[];
  /** Integers (5.1), and their bytes where the bits before the prefix are 0. */
  readonly integers: readonly { readonly value: number; readonly prefixBits: number; readonly bytes: string }[];
  /** Blocks that one decoder gets one after another, their fields, and the dynamic table afterwards. */
  readonly examples: readonly {
    readonly name: string;
    readonly tableLimitBytes: number;
    readonly blocks: readonly {
      readonly block: string;
      readonly fields: readonly Field[];
      readonly table: readonly Field[];
    }[];
  }[];
  readonly huffmanTexts: readonly { readonly text: string; readonly code: string }[];
  readonly invalidBlocks: readonly { readonly what: string; readonly block: string }[];
}

export const VECTORS: Vectors = vectors as unknown as Vectors;
