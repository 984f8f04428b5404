import type { Owners, Piece } from "../../tar/index.ts";
import type { DirectoryEntry, OpendirOptions } from "./listing.ts";
import type { GuestPath, PlaceOptions } from "./path.ts";
import type { ReadOptions } from "./read.ts";
import type { FileStat } from "./stat.ts";

/** The methods of Files that `upload` and `download` call. */
export interface CopyCalls {
  stat(path: GuestPath, options: PlaceOptions): Promise<FileStat>;
  lstat(path: GuestPath, options: PlaceOptions): Promise<FileStat>;
  opendir(path: GuestPath, options: OpendirOptions): AsyncIterable<DirectoryEntry>;
  readPieces(path: GuestPath, options: ReadOptions): AsyncIterable<Piece>;
  setAttributes(
    path: GuestPath,
    attributes: Pick<FileStat, "mode" | "mtime" | "mtimeNanos"> & Owners,
    options: PlaceOptions,
  ): Promise<FileStat>;
}
