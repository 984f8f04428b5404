import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, gzip } from "node:zlib";
import { execa } from "execa";
import { neutralTar } from "../package/archive.ts";
import { makeClientLibrary } from "../package/client-library.ts";

/** Most bytes of a kept release: every clone has all of its files. */
export const KEPT_BYTES = 300_000;

/** What is kept of a release, by the names in its folder. */
export const KEPT = {
  /** The schema as a FileDescriptorSet. */
  schema: "schema.binpb",
  /** The client library as `npm install` takes it. */
  client: "client.tgz",
  /** The commit that it was made of. */
  commit: "commit",
} as const;

/** Puts what later versions are tested with into compat/v<version>; returns that folder. */
export async function keepRelease(root: string, version: string, commit: string): Promise<string> {
  const folder = join(root, "compat", `v${version}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const schema = ["--exclude-source-info", "--as-file-descriptor-set", "-o", join(folder, KEPT.schema)];
  await execa("buf", ["build", ...schema], { cwd: root, preferLocal: true, localDir: root });
  const client = join(root, "dist", ".unfinished", "kept-client");
  await makeClientLibrary(root, client);
  const tar = neutralTar(client, "package");
  writeFileSync(join(folder, KEPT.client), await promisify(gzip)(tar, { level: constants.Z_BEST_COMPRESSION }));
  rmSync(client, { recursive: true });
  writeFileSync(join(folder, KEPT.commit), `${commit}\n`);
  const sizeBytes = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  if (sizeBytes > KEPT_BYTES) throw new Error(`${folder} has ${sizeBytes} bytes, more than ${KEPT_BYTES}`);
  return folder;
}
