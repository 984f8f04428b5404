import { create, type MessageInitShape } from "@bufbuild/protobuf";
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
  type WatchEvent,
  WatchEventKind,
  WatchResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { StatPathResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { messageFrame, timestampNs } from "../codec.ts";
import type { Router } from "../router.ts";
import { statResponse, TYPE_NUMBERS } from "./file-messages.ts";
import { serveReadTree, serveWriteTree } from "./tree.ts";

/** Registers the service FileTree. */
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
    const send = (response: MessageInitShape<typeof WatchResponseSchema>): Promise<void> => {
      call.send(messageFrame(WatchResponseSchema, create(WatchResponseSchema, response)));
      return call.drained();
    };
    const { signal } = call;
    const begun = (watched: number): void => void send({ watching: true, directories: watched });
    await (
      await watches()
    ).watch(request, { signal, begun, send: (changes) => send({ events: changes.map(watchEvent) }) });
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

function watchEvent({ kind, path, newPath, isDirectory: directory, errno }: Change): WatchEvent {
  const paths = { path: Buffer.from(path, "latin1"), newPath: Buffer.from(newPath, "latin1") };
  return { $typeName: "svc.guest.v1alpha1.WatchEvent", kind: WatchEventKind[kind], ...paths, directory, errno };
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
