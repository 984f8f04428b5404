export {
  BLOCK_BYTES,
  damaged,
  paddingBytes,
  readHeader,
  readPax,
  TarError,
  type TarHeader,
  type TarType,
  writeHeader,
  writePax,
} from "./format.ts";
