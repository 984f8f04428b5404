import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { type GuestClient, GuestError, type NewAttributes, type PathAttributes } from "../../client/index.ts";
import { type Answer, type Host, printable, STATUS_NOT_AS_INTENDED, nameOf } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, type ConnectionValues, openClient } from "../target/index.ts";
import { attributesObject } from "./schema.ts";

export const RECURSIVE_OPTION = {
  recursive: { short: "R", help: "also everything below, except links and other file systems" },
} as const;

/** Computes an entry's new attributes from its current ones. */
type Change = (attributes: PathAttributes, isDirectory: boolean) => NewAttributes;
interface Values extends ConnectionValues {
  readonly recursive?: boolean | undefined;
}

/**
 * Sets attributes of paths and, with --recursive, of everything below them. An entry below a directory that cannot be
 * changed is reported and the others are changed, as in chmod(1) and chown(1). If a path on the command line fails,
 * this rejects with GuestError.
 */
export async function changeEach(
  paths: readonly string[],
  values: Values,
  host: Host,
  change: (client: GuestClient) => Promise<Change> | Change,
): Promise<Answer> {
  using client = await openClient(values, host);
  const changed: object[] = [];
  let failed = 0;
  const changeOf = await change(client);
  for (const path of paths) {
    const present = await client.statPath(nameOf(path), { requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const isDirectory = present.type === FileType.DIRECTORY;
    // The entries below come first, because afterwards the agent may have no access to the directory.
    if (values.recursive === true && isDirectory)
      failed += await below(client, path, changeOf, host, (json) => changed.push(json));
    const options = { follow: true, requestTimeoutMs: ANSWER_TIMEOUT_MS };
    const attributes = await client.setAttributes(nameOf(path), changeOf(present, isDirectory), options);
    changed.push({ path, ...attributesObject(attributes) });
  }
  return { text: "", json: changed, status: failed === 0 ? 0 : STATUS_NOT_AS_INTENDED };
}

async function below(
  client: GuestClient,
  root: string,
  change: Change,
  host: Host,
  onChanged: (json: object) => void,
): Promise<number> {
  let failed = 0;
  const fail = (name: string, why: string): void => {
    failed += 1;
    host.stderr.write(`guestctl: ${printable(`cannot change ${root}/${name}: ${why}`)}\n`);
  };
  const entries: { readonly name: string; readonly rawName: Buffer; readonly attributes: PathAttributes }[] = [];
  for await (const { name, rawName, type, attributes, errno, mountPoint } of client.list(nameOf(root), {
    depth: Number.POSITIVE_INFINITY,
  })) {
    if (errno !== undefined) fail(name, errno);
    if (attributes !== undefined && type !== FileType.SYMLINK && !mountPoint)
      entries.push({ name, rawName, attributes });
  }
  // In reverse order: the content of a directory before the directory.
  for (const { name, rawName, attributes } of entries.toReversed())
    try {
      const place = { beneath: nameOf(root), noSymlinks: true, requestTimeoutMs: ANSWER_TIMEOUT_MS };
      const isDirectory = attributes.type === FileType.DIRECTORY;
      const now = await client.setAttributes(rawName, change(attributes, isDirectory), place);
      onChanged({ path: `${root}/${name}`, ...attributesObject(now) });
    } catch (error) {
      if (!(error instanceof GuestError) || error.reason === "") throw error;
      fail(name, error.message);
    }
  return failed;
}
