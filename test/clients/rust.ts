import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { cachedFolder, cacheKey } from "../fixtures/build-cache.ts";
import type { ClientProgram } from "./program.ts";

const SOURCES = join(import.meta.dirname, "rust");
/** What the edition of the client's crate needs. Debian 12 has an older one, so nothing is installed. */
const MINIMUM_MINOR = 85;
const BUILD_TIMEOUT_MS = 500_000;

/** The client of test/clients/rust, over tonic: Rust's h2 and rustls. */
export const rustClient: ClientProgram = {
  make: "Rust (tonic)",
  provide: async () => {
    const { stdout, failed } = await execa("cargo", ["--version"], { reject: false, timeout: BUILD_TIMEOUT_MS });
    const [version = "", minor] = /^cargo 1\.(\d+)\S*/.exec(stdout ?? "") ?? [];
    if (failed || Number(minor) < MINIMUM_MINOR || minor === undefined) {
      return `needs cargo >= 1.${MINIMUM_MINOR} (${version === "" ? "none in PATH" : `this is ${version}`})`;
    }
    return [await build(version)];
  },
};

/** Builds the client, once for the same sources: about 45 s of processor time, nearly all of it for its packages. */
async function build(version: string): Promise<string> {
  const folder = await cachedFolder(`rust-${await cacheKey([SOURCES], [version])}`, async (place) => {
    const [target, home] = [join(place, "target"), join(place, "home")];
    const settings = join(process.env["CARGO_HOME"] ?? join(homedir(), ".cargo"), "config.toml");
    const config = existsSync(settings) ? ["--config", settings] : [];
    await execa("cargo", [...config, "build", "--quiet", "--locked", "--manifest-path", join(SOURCES, "Cargo.toml")], {
      env: { CARGO_HOME: home, CARGO_TARGET_DIR: target },
      timeout: BUILD_TIMEOUT_MS,
    });
    await rename(join(target, "debug", "guest-client"), join(place, "program"));
    // Packages and what was compiled of them.
    for (const used of [target, home]) await rm(used, { recursive: true });
  });
  return join(folder, "program");
}
