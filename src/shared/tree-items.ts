import type { FieldWriter } from "./field-writer.ts";
import { TreeItemSchema, TreeItemsSchema } from "./gen/svc/guest/v1alpha1/file_tree_pb.ts";
import type { FileType } from "./gen/svc/guest/v1alpha1/files_pb.ts";

/** An item of a tree (message TreeItem) to be sent. */
export interface SentItem {
  readonly path: Uint8Array;
  readonly type: FileType;
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly mtime: { readonly seconds: number; readonly nanos: number } | undefined;
  readonly size: number;
  readonly data: Uint8Array;
  readonly linkTarget: Uint8Array;
  readonly sparse: boolean;
}

/** Upper bound for the size of an item without its path, data and link target. What remains are ten fields. */
const ITEM_BYTES = 128;
const FIELD = TreeItemSchema.field;

/** Returns an upper bound for the size of a message that contains only these items. */
export function itemsBytes(items: readonly Pick<SentItem, "path" | "data" | "linkTarget">[]): number {
  let sizeBytes = ITEM_BYTES;
  for (const { path, data, linkTarget } of items)
    sizeBytes += ITEM_BYTES + path.length + data.length + linkTarget.length;
  return sizeBytes;
}

/**
 * Writes items as a repeated field. In the agent, this takes 1.0 µs of CPU time per item, and the protobuf library 2.4
 * µs. The difference is 5 % of the 28 µs for a whole small file (row "tree out of the guest, 30,000 files" of the
 * benchmark). In the client it is 1.1 µs and 4.3 µs.
 */
export function writeItems(writer: FieldWriter, field: number, items: Iterable<SentItem>, likelyBytes: number): void {
  writer.message(
    field,
    () => {
      for (const item of items)
        writer.message(TreeItemsSchema.field.items.number, () => writeItem(writer, item), item.data.length);
    },
    likelyBytes,
  );
}

function writeItem(writer: FieldWriter, { path, type, mode, uid, gid, mtime, ...rest }: SentItem): void {
  writer.bytes(FIELD.path.number, path);
  writer.number(FIELD.type.number, type);
  if (mode !== undefined) writer.optionalNumber(FIELD.mode.number, mode);
  if (uid !== undefined) writer.optionalNumber(FIELD.uid.number, uid);
  if (gid !== undefined) writer.optionalNumber(FIELD.gid.number, gid);
  if (mtime !== undefined) writer.time(FIELD.mtime.number, mtime.seconds, mtime.nanos);
  writer.number(FIELD.size.number, rest.size);
  writer.bytes(FIELD.data.number, rest.data);
  writer.bytes(FIELD.linkTarget.number, rest.linkTarget);
  writer.number(FIELD.sparse.number, rest.sparse ? 1 : 0);
}
