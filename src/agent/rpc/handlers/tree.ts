import { create } from "@bufbuild/protobuf";
import type { Folders, TreeFailure, TreeItem, TreeOutput, TreeProgress, TreeWriter } from "../../files/index.ts";
import { frameOrder, invalidField } from "../../domain/index.ts";
import {
  type ReadTreeRequest,
  ReadTreeResponseSchema,
  type TreeFailure as FailureMessage,
  TreeFailureSchema,
  type TreeItem as ItemMessage,
  TreeItemSchema,
  TreeSync,
  type WriteTreeHeader,
  type WriteTreeRequest,
  WriteTreeRequestSchema,
  WriteTreeResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType as FileTypeNumber } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { Call } from "../call.ts";
import { bytesFieldFrame, decodeMessage, messageFrame, timestamp, timestampNs } from "../codec.ts";
import { TYPE_NUMBERS } from "./file-messages.ts";

const SYNCS: ReadonlySet<number> = new Set(Object.values(TreeSync));
/** Of a message of items: 1,365 with all that an item can have. */
const ITEM_FIELDS = 16_384;
const DATA_FIELD = ReadTreeResponseSchema.field.data.number;

/** Serves one WriteTree call: a header, then items and the bytes of large files. */
export async function serveWriteTree(folders: Folders, call: Call): Promise<void> {
  const messages = call.messages();
  const first = await messages.next();
  const header = first && call.decode(WriteTreeRequestSchema, first).part;
  if (header?.case !== "header")
    throw frameOrder(`the first message is ${header?.case ?? "missing"}; it must be header`);
  const send = (progress: TreeProgress, done: boolean): void => {
    const { items, bytes, failed, failures } = progress;
    const result = done ? { done, failed, failures: failures.map(failureMessage) } : {};
    call.send(messageFrame(WriteTreeResponseSchema, create(WriteTreeResponseSchema, { items, bytes, ...result })));
  };
  const fill = async (writer: TreeWriter, onProgress: () => void): Promise<void> => {
    // Its client may wait for this before it begins with what it cannot begin twice.
    send(writer.progress, false);
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

function failureMessage({ path, errno }: TreeFailure): FailureMessage {
  return create(TreeFailureSchema, { path, errno });
}

/** Serves one ReadTree call. */
export async function serveReadTree(folders: Folders, request: ReadTreeRequest, call: Call): Promise<void> {
  const sendPart = (part: Parameters<typeof create<typeof ReadTreeResponseSchema>>[1]): void =>
    call.send(messageFrame(ReadTreeResponseSchema, create(ReadTreeResponseSchema, part)));
  const output: TreeOutput = {
    items: (items) => {
      sendPart({ part: { case: "items", value: { items: items.map(itemMessage) } } });
      return call.drained();
    },
    data: (bytes, release) => {
      call.send(bytesFieldFrame(DATA_FIELD, bytes), release);
      return call.drained();
    },
  };
  const where = { ...locationOf(request), crossMounts: request.crossMounts };
  const { items, failed, failures } = await folders.readTree(where, output, call);
  sendPart({ part: { case: "result", value: { items, failed, failures: failures.map(failureMessage) } } });
}

function itemMessage({ path, type, mode, uid, gid, modifiedNs, sizeBytes, data, linkTarget }: TreeItem): ItemMessage {
  return create(TreeItemSchema, {
    path,
    type: TYPE_NUMBERS[type] ?? FileTypeNumber.UNSPECIFIED,
    ...(mode !== undefined && { mode }),
    ...(uid !== undefined && { uid }),
    ...(gid !== undefined && { gid }),
    ...(modifiedNs !== undefined && { mtime: timestamp(modifiedNs) }),
    size: sizeBytes,
    data,
    linkTarget,
  });
}
