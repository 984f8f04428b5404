import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "esbuild";

/** A change of one source file, for a build that is only a test. */
export interface Patch {
  /** Path from the project's root. */
  readonly file: string;
  /** Text that is in the file exactly once. */
  readonly find: string;
  readonly replace: string;
}

/** Makes esbuild read the files as changed. A patch that no longer fits its file fails the build. */
export function patches(root: string, changes: readonly Patch[]): Plugin {
  const applied = new Set<Patch>();
  return {
    name: "patches",
    setup: (build) => {
      build.onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path }) => {
        const own = changes.filter(({ file }) => join(root, file) === path);
        if (own.length === 0) return undefined;
        let contents = readFileSync(path, "utf8");
        for (const change of own) {
          const [before = "", after, ...more] = contents.split(change.find);
          if (after === undefined || more.length > 0) throw new Error(`${change.file} has not once: ${change.find}`);
          contents = before + change.replace + after;
          applied.add(change);
        }
        return { contents, loader: "ts" };
      });
      build.onEnd(() => {
        for (const change of changes) if (!applied.has(change)) throw new Error(`${change.file} is not in the bundle`);
      });
    },
  };
}
