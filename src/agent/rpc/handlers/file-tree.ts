import { create } from "@bufbuild/protobuf";
import type { Change, Directories, ListedEntry, Watches } from "../../files/index.ts";
import {
  FileTree,
  type ListResponse,
  ListResponseSchema,
  MakeFolderResponseSchema,
  MakeLinkResponseSchema,
  RemoveResponseSchema,
  RenameResponseSchema,
  SetAttributesResponseSchema,
  WatchEventKind,
  WatchEventSchema,
  WatchResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { StatPathResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { type Frame, FrameWriter, messageFrame, timestampNs } from "../codec.ts";
import type { Router } from "../router.ts";
import { statResponse, TYPE_NUMBERS } from "./file-messages.ts";
import { serveReadTree, serveWriteTree } from "./tree.ts";

/** Serves FileTree, which lists, changes, transfers and watches directories. `watches` loads the module for Watch. */
export function serveFileTree(router: Router, directories: Directories, watches: () => Promise<Watches>): void {
  router.serverStream(FileTree.method.list, async (request, call) => {
    const send = async (entries: readonly ListedEntry[], truncated: boolean): Promise<void> => {
      call.send(messageFrame(ListResponseSchema, listResponse(entries, truncated)));
      await call.drained();
    };
    await directories.list(request, send, call);
  });
  router.unary(FileTree.method.makeFolder, async (request) =>
    create(MakeFolderResponseSchema, { created: await directories.makeFolder(request) }),
  );
  router.unary(FileTree.method.makeLink, async (request) => {
    await directories.makeLink(request);
    return create(MakeLinkResponseSchema);
  });
  router.unary(FileTree.method.remove, async (request, call) => {
    const { removed, left, leftEntries } = await directories.remove(request, call);
    return create(RemoveResponseSchema, { removed, left, leftEntries: [...leftEntries] });
  });
  router.bidiStream(FileTree.method.writeTree, (call) => serveWriteTree(directories, call));
  router.serverStream(FileTree.method.readTree, (request, call) => serveReadTree(directories, request, call));
  router.serverStream(FileTree.method.watch, async (request, call) => {
    const begun = (watched: number): void =>
      call.send(
        messageFrame(WatchResponseSchema, create(WatchResponseSchema, { watching: true, directories: watched })),
      );
    const send = (changes: readonly Change[]): Promise<void> => {
      call.send(changesFrame(changes));
      return call.drained();
    };
    await (await watches()).watch(request, { signal: call.signal, begun, send });
  });
  router.unary(FileTree.method.rename, async (request) => {
    await directories.rename(request);
    return create(RenameResponseSchema);
  });
  router.unary(FileTree.method.setAttributes, async (request) => {
    const modifiedNs = request.mtime && timestampNs("mtime", request.mtime);
    const stat = statResponse(await directories.setAttributes({ ...request, modifiedNs }));
    return create(SetAttributesResponseSchema, { stat });
  });
}

const { events: EVENTS } = WatchResponseSchema.field;
const EVENT = WatchEventSchema.field;
/**
 * Largest encoded size of a WatchEvent without its paths. The event has seven protobuf tags, two lengths of up to five
 * bytes each, and a short errno.
 */
const EVENT_BYTES = 64;

/**
 * Encodes a WatchResponse without message objects: most batches are small, and creating objects would take most of the
 * time.
 */
function changesFrame(changes: readonly Change[]): Frame {
  const pathBytes = changes.reduce((bytes, { path, newPath }) => bytes + path.length + newPath.length, 0);
  const writer = new FrameWriter(pathBytes + changes.length * EVENT_BYTES);
  for (const { kind, path, newPath, isDirectory, errno } of changes)
    writer.message(
      EVENTS.number,
      () => {
        writer.number(EVENT.kind.number, WatchEventKind[kind]);
        writer.latin1(EVENT.path.number, path);
        writer.latin1(EVENT.newPath.number, newPath);
        writer.number(EVENT.directory.number, Number(isDirectory));
        writer.latin1(EVENT.errno.number, errno);
      },
      path.length,
    );
  return writer.frame();
}

function listResponse(entries: readonly ListedEntry[], truncated: boolean): ListResponse {
  return {
    $typeName: "svc.guest.v1alpha1.ListResponse",
    truncated,
    entries: entries.map(({ name, type, inode, attributes, linkTarget, errno = "", isMountPoint }) => ({
      $typeName: "svc.guest.v1alpha1.TreeEntry",
      name,
      stat:
        attributes === undefined
          ? create(StatPathResponseSchema, { type: TYPE_NUMBERS[type], inode })
          : statResponse({ attributes, linkTarget }),
      errno,
      mountPoint: isMountPoint,
    })),
  };
}
