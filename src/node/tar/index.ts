export { fileContent } from "./content.ts";
export { BLOCK_BYTES, readHeader, readPax, TarError, writeHeader, writePax } from "./format.ts";
export type { TarHeader, TarType } from "./format.ts";
export { type Hole, isHole, type Piece, withHoles, withZeros } from "./holes.ts";
export {
  type LocalEntry,
  localEntry,
  type LocalTarEntry,
  localTree,
  type Watch,
  whole,
  withRoot,
} from "./local-tree.ts";
export { readTar, type TarEntry } from "./read.ts";
export { MODE_MASK, unpack, UnpackError } from "./unpack.ts";
export { entryEnd, entryHead, TAR_END } from "./write.ts";
