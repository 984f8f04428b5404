import { join } from "node:path";
import { execaSync } from "execa";
import { GUEST_ARCHITECTURE } from "../../test/vm/harness/architecture.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/** Builds the agent that goes into the guests, unless it was built from these sources. */
export function prepareAgent(): void {
  const build = join(ROOT, "scripts", "build.ts");
  execaSync(process.execPath, [build, GUEST_ARCHITECTURE.name, "--unless-current"], { cwd: ROOT, stdio: "inherit" });
}
