import {
  type GuestClient,
  GuestError,
  type NewAttributes,
  type FileAttributes,
  type ReadEntry,
} from "../../client/index.ts";
import { type Answer, type Host, printable, STATUS_NOT_AS_INTENDED, nameOf, waitedFor } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, type ConnectionValues, openClient } from "../connection/index.ts";
import { attributesObject } from "./schema.ts";

export const RECURSIVE_OPTION = {
  recursive: { short: "R", help: "also change everything below each directory, except links and other file systems" },
} as const;

/** Computes an entry's new attributes from its current ones. */
type Change = (attributes: FileAttributes, isDirectory: boolean) => NewAttributes;
interface AttributeValues extends ConnectionValues {
  readonly recursive?: boolean | undefined;
}

/**
 * Sets attributes of paths and, with --recursive, of everything below them. If an entry below a directory cannot be
 * changed, it is reported, and the others are changed, as with chmod(1) and chown(1). If a path on the command line
 * cannot be changed, rejects with GuestError.
 */
export async function changeEach(
  paths: readonly string[],
  values: AttributeValues,
  host: Host,
  change: (client: GuestClient) => Promise<Change> | Change,
): Promise<Answer> {
  using client = await openClient(values, host);
  const changed: object[] = [];
  let failed = 0;
  const changeOf = await change(client);
  for (const path of paths) {
    const present = await client.files.stat(nameOf(path), { requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const isDirectory = present.type === "directory";
    // Change the entries in a directory before the directory itself: once the directory has its new attributes, the
    // agent may have no access to its entries.
    if (values.recursive === true && isDirectory) {
      const { value } = await waitedFor(`change everything below ${path}`, host, (note) =>
        below({ client, root: path, change: changeOf, note }, (json) => changed.push(json)),
      );
      failed += value;
    }
    const options = { follow: true, requestTimeoutMs: ANSWER_TIMEOUT_MS };
    const attributes = await client.files.setAttributes(nameOf(path), changeOf(present, isDirectory), options);
    changed.push({ path, ...attributesObject(attributes) });
  }
  return { text: "", json: changed, status: failed === 0 ? 0 : STATUS_NOT_AS_INTENDED };
}

interface Below {
  readonly client: GuestClient;
  readonly root: string;
  readonly change: Change;
  /** Writes a line to standard error. */
  readonly note: (line: string) => void;
}

async function below({ client, root, change, note }: Below, onChanged: (json: object) => void): Promise<number> {
  let failed = 0;
  const fail = (name: string, why: string): void => {
    failed += 1;
    note(`guestctl: ${printable(`cannot change ${root}/${name}: ${why}`)}\n`);
  };
  const entries: ReadEntry[] = [];
  for await (const entry of client.files.opendir(nameOf(root), { recursive: true })) {
    if (entry.errno !== undefined) fail(entry.name, entry.errno);
    if (entry.size !== undefined && entry.type !== "symlink" && !entry.mountPoint) entries.push(entry);
  }
  // Change everything in a directory before the directory itself. The listing names each directory first, so go through
  // it backwards.
  for (const entry of entries.toReversed())
    try {
      const place = { beneath: nameOf(root), noSymlinks: true, requestTimeoutMs: ANSWER_TIMEOUT_MS };
      const now = await client.files.setAttributes(entry.rawName, change(entry, entry.type === "directory"), place);
      onChanged({ path: `${root}/${entry.name}`, ...attributesObject(now) });
    } catch (error) {
      if (!(error instanceof GuestError) || error.reason === "") throw error;
      fail(entry.name, error.message);
    }
  return failed;
}
