import { create } from "@bufbuild/protobuf";
import { StatPathResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { PathAttributes } from "../client/index.ts";
import { messageObject, timestampOf } from "./output.ts";

/** Attributes of a path as the schema has them (StatPathResponse). */
export function attributesObject(attributes: PathAttributes): object {
  const { size, inode, links, linkTarget, mtimeNanos, atimeNanos, ctimeNanos, ...rest } = attributes;
  const times = {
    mtime: timestampOf(rest.mtime, mtimeNanos),
    atime: timestampOf(rest.atime, atimeNanos),
    ctime: timestampOf(rest.ctime, ctimeNanos),
  };
  const { type, mode, uid, gid } = rest;
  const message = create(StatPathResponseSchema, {
    type,
    mode,
    uid,
    gid,
    size: BigInt(size),
    inode: BigInt(inode),
    links: BigInt(links),
    ...Object.fromEntries(Object.entries(times).filter(([, time]) => time !== undefined)),
    ...(linkTarget && { linkTarget: new Uint8Array(linkTarget) }),
  });
  return messageObject(StatPathResponseSchema, message);
}
