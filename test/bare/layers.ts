import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { repositoryFiles, ROOT } from "../../scripts/check.ts";
import { type DebianRelease, debianRoot } from "../system/debian-archive.ts";
import { ADMINISTRATOR, aptInstall, BareMachine, copyFiles } from "./machine.ts";

/** What README.md says to install on Debian 13, and what the first run then installs. */
const PACKAGES = "npm build-essential libatomic1";
/**
 * A layer over a minimal Debian with the packages that a clone requires. It is made once, in about a minute, and cached
 * beside the minimal installation.
 */
export async function installedLayer(release: DebianRelease, abort: AbortSignal): Promise<string> {
  const base = debianRoot(release);
  const layer = `${base}-with-npm`;
  if (existsSync(layer)) return layer;
  // In the cache, so that the finished layer can be renamed.
  using machine = new BareMachine({ directory: dirname(base), layers: [base], hasSys: false, abort });
  const line = `${aptInstall(PACKAGES)} && rm -rf /var/lib/apt/lists/*`;
  const { code, output } = await machine.run(ADMINISTRATOR, "/", line);
  if (code !== 0) throw new Error(`the packages could not be installed: ${output}`);
  machine.keepAs(layer);
  return layer;
}

/**
 * A layer with a clone of this checkout and its packages, as after the set-up. Nothing is built in it: other compilers
 * make other bytes. Disposing of it removes it.
 */
export class CloneLayer implements Disposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /**
   * @param directory in which the layer is made, on the file system of this checkout
   * @param place directory of the clone on the machine
   */
  static async make(directory: string, place: string): Promise<CloneLayer> {
    const layer = new CloneLayer(mkdtempSync(join(directory, "clone-")));
    chmodSync(layer.path, 0o755);
    const clone = join(layer.path, place);
    mkdirSync(clone, { recursive: true });
    copyFiles(await repositoryFiles(), ROOT, clone);
    // As hard links, which take no space: a machine writes to a copy of its own.
    execFileSync("cp", ["-al", join(ROOT, "node_modules"), clone]);
    return layer;
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
