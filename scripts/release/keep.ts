import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, gzip } from "node:zlib";
import { execa } from "execa";
import { neutralTar } from "../package/archive.ts";
import { makeClientLibrary } from "../package/client-library.ts";

/** Largest size of a kept release: every clone contains the files of all kept releases. */
export const KEPT_BYTES = 500_000;

/** Files that are kept of a release. */
export const KEPT = {
  /** The schema as a FileDescriptorSet. */
  schema: "schema.binpb",
  /** The client library as `npm install` takes it. */
  client: "client.tgz",
  /** The commit that the release was made from. */
  commit: "commit",
} as const;

/** Stores the files of a release that later versions are tested with in compat/v<version>. Returns that directory. */
export async function keepRelease(root: string, version: string, commit: string): Promise<string> {
  const directory = join(root, "compat", `v${version}`);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  const schema = ["--exclude-source-info", "--as-file-descriptor-set", "-o", join(directory, KEPT.schema)];
  await execa("buf", ["build", ...schema], { cwd: root, preferLocal: true, localDir: root });
  const client = join(root, "dist", ".unfinished", "kept-client");
  await makeClientLibrary(root, client);
  const tar = neutralTar(client, "package");
  writeFileSync(join(directory, KEPT.client), await promisify(gzip)(tar, { level: constants.Z_BEST_COMPRESSION }));
  rmSync(client, { recursive: true });
  writeFileSync(join(directory, KEPT.commit), `${commit}\n`);
  const sizeBytes = readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0);
  if (sizeBytes > KEPT_BYTES) throw new Error(`${directory} has ${sizeBytes} bytes, more than ${KEPT_BYTES}`);
  return directory;
}
