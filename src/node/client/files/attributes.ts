import { type StatPathResponse, StatPathResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { isDate, plain, type Plain } from "../plain.ts";

/** Attributes of a path in the sandbox (message StatPathResponse, stat(2)). A plain object: JSON.stringify takes it. */
export type PathAttributes = Omit<Plain<StatPathResponse>, "inode" | "linkTarget"> & {
  /** Inode number in decimal: a number does not hold all of them. */
  readonly inode: string;
  /** Target of a symbolic link, with `noFollow`; bytes, as it need not be UTF-8. */
  readonly linkTarget?: Buffer;
  /** Seconds since 1970 in decimal, only where no Date holds the time. */
  readonly mtimeSeconds?: string;
  readonly atimeSeconds?: string;
  readonly ctimeSeconds?: string;
};

/** The message as a plain object. */
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
