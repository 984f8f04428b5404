import { create } from "@bufbuild/protobuf";
import type { Folders, TreeItem, TreeOutput, TreeProgress, TreeWriter } from "../../files/index.ts";
import { frameOrder, invalidField } from "../../domain/index.ts";
import {
  type ReadTreeRequest,
  ReadTreeResponseSchema,
  type TreeItem as ItemMessage,
  TreeItemSchema,
  TreeItemsSchema,
  TreeSync,
  type WriteTreeHeader,
  type WriteTreeRequest,
  WriteTreeRequestSchema,
  WriteTreeResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import type { Call } from "../call.ts";
import { bytesFieldFrame, decodeMessage, FieldWriter, type Frame, messageFrame, timestampNs } from "../codec.ts";
import { TYPE_NUMBERS } from "./file-messages.ts";

const SYNCS: ReadonlySet<number> = new Set(Object.values(TreeSync));
/** Of a message of items: 1,365 with all that an item can have. */
const ITEM_FIELDS = 16_384;
const DATA_FIELD = ReadTreeResponseSchema.field.data.number;
const HOLE_FIELD = ReadTreeResponseSchema.field.hole.number;

/** Serves one WriteTree call: a header, then items and the bytes of large files. */
export async function serveWriteTree(folders: Folders, call: Call): Promise<void> {
  const messages = call.messages();
  const first = await messages.next();
  const header = first && call.decode(WriteTreeRequestSchema, first).part;
  if (header?.case !== "header")
    throw frameOrder(`the first message is ${header?.case ?? "missing"}; it must be header`);
  const send = (progress: TreeProgress, done: boolean, holes = false): void => {
    const { items, bytes, failed, failures } = progress;
    const result = done ? { done, failed, failures: [...failures] } : { holes };
    call.send(messageFrame(WriteTreeResponseSchema, create(WriteTreeResponseSchema, { items, bytes, ...result })));
  };
  const fill = async (writer: TreeWriter, onProgress: () => void): Promise<void> => {
    // Its client may wait for this before it begins with what it cannot begin twice.
    send(writer.progress, false, true);
    for (let next = await messages.next(); next !== undefined; next = await messages.next()) {
      onProgress();
      // Views of the message: it is given back when nothing uses them any more.
      await take(writer, decodeMessage(WriteTreeRequestSchema, next.bytes, ITEM_FIELDS));
      next.release();
      send(writer.progress, false);
      await call.drained();
    }
  };
  const { value } = header;
  send(await folders.writeTree({ ...locationOf(value), ...optionsOf(value) }, fill, call), true);
}

function locationOf({ path, beneath, noSymlinks }: WriteTreeHeader | ReadTreeRequest) {
  return { path, beneath, noSymlinks: noSymlinks && beneath.length > 0 };
}

function optionsOf({ overwrite, specialBits, failFast, parents, sync, noSymlinks }: WriteTreeHeader) {
  if (!SYNCS.has(sync)) throw invalidField("header.sync", "is neither ALL nor NONE");
  return { overwrite, specialBits, failFast, parents, followsNone: noSymlinks, syncs: sync !== TreeSync.NONE };
}

async function take(writer: TreeWriter, { part }: WriteTreeRequest): Promise<void> {
  if (part.case === "items") await writer.take(part.value.items.map(treeItem));
  else if (part.case === "data") await writer.data(part.value);
  else if (part.case === "hole") await writer.hole(part.value);
  else throw frameOrder(part.case === "header" ? "second header; a call writes one tree" : "message without content");
}

function treeItem(item: ItemMessage): TreeItem {
  const { path, type, mode, uid, gid, size, data, linkTarget, sparse } = item;
  const modifiedNs = item.mtime && timestampNs("items.mtime", item.mtime);
  return {
    path,
    type: TYPES.get(type) ?? "unknown",
    mode,
    uid,
    gid,
    modifiedNs,
    sizeBytes: size,
    data,
    linkTarget,
    sparse,
  };
}

const TYPES = new Map(Object.entries(TYPE_NUMBERS).map(([type, number]) => [number, type as TreeItem["type"]]));

/** Serves one ReadTree call. */
export async function serveReadTree(folders: Folders, request: ReadTreeRequest, call: Call): Promise<void> {
  const sendHole = (bytes: bigint): Promise<void> => {
    const writer = new FieldWriter();
    writer.number(HOLE_FIELD, Number(bytes));
    call.send(writer.frame());
    return call.drained();
  };
  const output: TreeOutput = {
    items: (items) => {
      call.send(itemsFrame(items));
      return call.drained();
    },
    data: (bytes, release) => {
      call.send(bytesFieldFrame(DATA_FIELD, bytes), release);
      return call.drained();
    },
    hole: request.holes ? sendHole : undefined,
  };
  const where = { ...locationOf(request), crossMounts: request.crossMounts };
  const { items, failed, failures } = await folders.readTree(where, output, call);
  const value = { items, failed, failures: [...failures] };
  call.send(messageFrame(ReadTreeResponseSchema, create(ReadTreeResponseSchema, { part: { case: "result", value } })));
}

/** Bytes of an item beside its path, its data and its target, at most: ten fields. */
const ITEM_BYTES = 128;
const FIELD = TreeItemSchema.field;

/** A message of items. By hand: message objects of 30,000 files took as much CPU time as their reading and sending. */
export function itemsFrame(items: readonly TreeItem[]): Frame {
  let sizeBytes = ITEM_BYTES;
  for (const { path, data, linkTarget } of items)
    sizeBytes += ITEM_BYTES + path.length + data.length + linkTarget.length;
  const writer = new FieldWriter(sizeBytes);
  writer.message(ReadTreeResponseSchema.field.items.number, () => {
    for (const item of items) writer.message(TreeItemsSchema.field.items.number, () => writeItem(writer, item));
  });
  return writer.frame();
}

function writeItem(
  writer: FieldWriter,
  { path, type, mode, uid, gid, modifiedNs, sizeBytes, ...rest }: TreeItem,
): void {
  writer.bytes(FIELD.path.number, path);
  writer.number(FIELD.type.number, TYPE_NUMBERS[type]);
  if (mode !== undefined) writer.optionalNumber(FIELD.mode.number, mode);
  if (uid !== undefined) writer.optionalNumber(FIELD.uid.number, uid);
  if (gid !== undefined) writer.optionalNumber(FIELD.gid.number, gid);
  if (modifiedNs !== undefined) writer.time(FIELD.mtime.number, modifiedNs);
  writer.number(FIELD.size.number, Number(sizeBytes));
  writer.bytes(FIELD.data.number, rest.data);
  writer.bytes(FIELD.linkTarget.number, rest.linkTarget);
  writer.number(FIELD.sparse.number, rest.sparse ? 1 : 0);
}
