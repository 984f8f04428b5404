import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { DescFile } from "@bufbuild/protobuf";
import type { Plugin } from "esbuild";
import { encodeFile } from "./encode.ts";

/** What protoc-gen-es writes: the file's descriptor in base64 of its binary form. */
const FILE_DESC = /\bfileDesc\("[A-Za-z0-9+/=]*"/;
const READY_FILE = join(import.meta.dirname, "ready-file.ts");

/**
 * Puts the descriptors of generated code into the bundle in decoded form. Decoding costs each start of the agent 2 MiB
 * and 13 ms of CPU, 7 ms of them before the workload. The library first sets up the descriptor of descriptors, and
 * decodes each file by it.
 */
export function readyDescriptors(): Plugin {
  return {
    name: "ready-descriptors",
    setup(build): void {
      build.onLoad({ filter: /_pb\.(?:js|ts)$/ }, async ({ path }) => {
        const source = readFileSync(path, "utf8");
        if (!FILE_DESC.test(source)) return undefined;
        const exports = Object.values((await import(pathToFileURL(path).href)) as object) as unknown[];
        const file = exports.find(isFile);
        if (file === undefined) throw new Error(`${path} exports no descriptor of its file`);
        const ready = JSON.stringify(encodeFile(file));
        return {
          contents: `import { readyFile } from ${JSON.stringify(READY_FILE)};\n${source.replace(FILE_DESC, () => `readyFile(${JSON.stringify(ready)}`)}`,
          loader: path.endsWith(".ts") ? "ts" : "js",
        };
      });
    },
  };
}

function isFile(value: unknown): value is DescFile {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "file";
}
