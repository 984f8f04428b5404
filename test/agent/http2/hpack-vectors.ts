import vectors from "./hpack-vectors.json" with { type: "json" };

/*
 * RFC 7541 as data: its static table (appendix A), its Huffman code (appendix B), and blocks that a decoder must refuse.
 * Independent of any code: HPACK must not be tested against itself. Bytes are hexadecimal.
 */

/** A header field: its name and its value. */
export type Field = readonly [name: string, value: string];

interface Vectors {
  readonly staticTable: readonly Field[];
  readonly huffmanTexts: readonly { readonly text: string; readonly code: string }[];
  readonly invalidBlocks: readonly { readonly what: string; readonly block: string }[];
}

export const VECTORS: Vectors = vectors as unknown as Vectors;
