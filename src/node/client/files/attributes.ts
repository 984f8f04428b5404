import { type StatPathResponse, StatPathResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { isDate, plain, type Plain } from "../plain.ts";

/**
 * Attributes of a path in the sandbox (message StatPathResponse, stat(2)), as a plain object that JSON.stringify
 * accepts.
 */
export type PathAttributes = Omit<Plain<StatPathResponse>, "inode" | "linkTarget"> & {
  /** Inode number in decimal: 64 bits do not fit into a JavaScript number. */
  readonly inode: string;
  /** Target of a symbolic link, with `noFollow`. Bytes, because it need not be UTF-8. */
  readonly linkTarget?: Buffer;
  /** Seconds since 1970 in decimal; only set if the time is out of the range of Date. */
  readonly mtimeSeconds?: string;
  readonly atimeSeconds?: string;
  readonly ctimeSeconds?: string;
};

export function attributesOf(message: StatPathResponse): PathAttributes {
  const { linkTarget, ...fields } = plain(StatPathResponseSchema, message);
  const seconds = (["mtime", "atime", "ctime"] as const).flatMap((name) => {
    const time = message[name];
    return time === undefined || isDate(time) ? [] : [[`${name}Seconds`, String(time.seconds)]];
  });
  return {
    ...fields,
    inode: String(message.inode),
    ...(linkTarget.length > 0 && { linkTarget }),
    ...(Object.fromEntries(seconds) as Partial<PathAttributes>),
  };
}
