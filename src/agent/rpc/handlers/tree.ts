import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Directories, FailedEntry, TreeItem, TreeOutput, TreeProgress, TreeWriter } from "../../files/index.ts";
import { frameOrder, invalidField } from "../../domain/index.ts";
import {
  type ReadTreeRequest,
  ReadTreeResponseSchema,
  type TreeItem as ItemMessage,
  TreeSync,
  type WriteTreeHeader,
  WriteTreeRequestSchema,
  WriteTreeResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { itemsBytes, type SentItem, writeItems } from "../../../shared/tree-items.ts";
import type { Call } from "../call.ts";
import {
  bytesFieldFrame,
  decodeMessage,
  type Frame,
  FrameWriter,
  messageFrame,
  timestamp,
  timestampNs,
  tryBytesField,
} from "../codec.ts";
import { TYPE_NUMBERS } from "./file-messages.ts";
import { tryItems, TYPES } from "./tree-items.ts";

const SYNCS: ReadonlySet<number> = new Set(Object.values(TreeSync));
/**
 * Limit for the number of protobuf fields in a message that has items. The fields of the items count, too. This limit
 * suffices for 1,365 items with 12 fields each.
 */
const ITEM_FIELDS = 16_384;
/**
 * While the agent writes a message of at most this size, it already receives the next message. While it writes a larger
 * message, it receives nothing. The client library sends messages of 256 KiB.
 */
const AHEAD_BYTES = 512 * 1024;
const FIELD = WriteTreeRequestSchema.field;
const DATA_FIELD = ReadTreeResponseSchema.field.data.number;

/** Serves WriteTree, whose request is a header followed by items and by the content of large files. */
export async function serveWriteTree(directories: Directories, call: Call): Promise<void> {
  const messages = call.messages();
  const first = await messages.next();
  const header = first && call.decode(WriteTreeRequestSchema, first).part;
  if (header?.case !== "header")
    throw frameOrder(`the first message is ${header?.case ?? "missing"}; it must be a "header" message`);
  const send = (progress: TreeProgress, more: MessageInitShape<typeof WriteTreeResponseSchema>): void => {
    const { items, bytesWritten } = progress;
    const answer = create(WriteTreeResponseSchema, { items, bytesWritten, ...more });
    call.send(messageFrame(WriteTreeResponseSchema, answer));
  };
  const report = (writer: TreeWriter): void => send(writer.progress, { newFailures: [...writer.takeFailures()] });
  const fill = async (writer: TreeWriter, onProgress: () => void): Promise<void> => {
    // Reports which features this agent supports. A client may wait for this answer before it starts to read a source
    // that can be read only once.
    send(writer.progress, { holes: true, itemFailures: true });
    let coming = messages.next();
    for (let next = await coming; next !== undefined; next = await coming) {
      onProgress();
      // The agent receives the next message while it writes a small one. It writes a large one completely first,
      // because two large messages at once would need too much memory.
      const isSmall = next.bytes.length <= AHEAD_BYTES;
      if (isSmall) coming = messages.next();
      // If the write below fails, nothing awaits `coming` any more. Without this no-op handler, a rejection of `coming`
      // would then be unhandled.
      coming.catch(() => undefined);
      // Release the message only after its items were written, because the items are views of the message.
      await take(writer, next.bytes);
      next.release();
      report(writer);
      await call.drained();
      if (!isSmall) coming = messages.next();
    }
  };
  const { value } = header;
  const progressed = async (writer: TreeWriter): Promise<void> => {
    report(writer);
    await call.drained();
  };
  const request = { ...locationOf(value), ...optionsOf(value) };
  const done = await directories.writeTree(request, { fill, progressed }, call);
  send(done, { done: true, failed: done.failed, failures: [...done.failures] });
}

function locationOf({ path, beneath, noSymlinks }: WriteTreeHeader | ReadTreeRequest) {
  return { path, beneath, noSymlinks: noSymlinks && beneath.length > 0 };
}

function optionsOf({ overwrite, specialBits, failFast, parents, sync, noSymlinks }: WriteTreeHeader) {
  if (!SYNCS.has(sync)) throw invalidField("header.sync", "must be ALL or NONE");
  return { overwrite, specialBits, failFast, parents, followsNone: noSymlinks, syncs: sync !== TreeSync.NONE };
}

async function take(writer: TreeWriter, message: Uint8Array): Promise<void> {
  const data = tryBytesField(message, FIELD.data.number);
  if (data !== undefined) return writer.data(data);
  const only = tryBytesField(message, FIELD.items.number);
  const items = only && tryItems(only, ITEM_FIELDS);
  if (items !== undefined) return writer.take(items);
  const { part } = decodeMessage(WriteTreeRequestSchema, message, ITEM_FIELDS);
  if (part.case === "items") await writer.take(part.value.items.map(treeItem));
  else if (part.case === "data") await writer.data(part.value);
  else if (part.case === "hole") await writer.hole(part.value);
  else if (part.case === "itemFailure") await writer.itemFailed();
  else throw frameOrder(part.case === "header" ? "second header, but a call writes only one tree" : "empty message");
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

/** Serves ReadTree. A message contains several small files, or one chunk of a large file. */
export async function serveReadTree(directories: Directories, request: ReadTreeRequest, call: Call): Promise<void> {
  const sendHole = (bytes: bigint): Promise<void> => {
    const message = create(ReadTreeResponseSchema, { part: { case: "hole", value: bytes } });
    call.send(messageFrame(ReadTreeResponseSchema, message));
    return call.drained();
  };
  const sendFailures = (entries: readonly FailedEntry[]): Promise<void> => {
    const value = { entries: [...entries] };
    const message = create(ReadTreeResponseSchema, { part: { case: "failures", value } });
    call.send(messageFrame(ReadTreeResponseSchema, message));
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
    failures: request.streamFailures ? sendFailures : undefined,
    hole: request.holes ? sendHole : undefined,
  };
  const { crossMounts, hardLinks } = request;
  const where = { ...locationOf(request), crossMounts, hardLinks };
  const { items, failed, failures } = await directories.readTree(where, output, call);
  const value = { items, failed, failures: [...failures] };
  call.send(messageFrame(ReadTreeResponseSchema, create(ReadTreeResponseSchema, { part: { case: "result", value } })));
}

/** Encodes the message of a ReadTree response that contains these items. */
export function itemsFrame(items: readonly TreeItem[]): Frame {
  const sizeBytes = itemsBytes(items);
  const writer = new FrameWriter(sizeBytes);
  writeItems(writer, ReadTreeResponseSchema.field.items.number, items.map(sentItem), sizeBytes);
  return writer.frame();
}

function sentItem({ modifiedNs, type, sizeBytes, ...item }: TreeItem): SentItem {
  const { seconds, nanos } = timestamp(modifiedNs ?? 0n);
  const mtime = modifiedNs === undefined ? undefined : { seconds: Number(seconds), nanos };
  return { ...item, type: TYPE_NUMBERS[type], mtime, size: Number(sizeBytes) };
}
