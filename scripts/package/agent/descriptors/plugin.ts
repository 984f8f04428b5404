import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { AnyDesc, DescFile } from "@bufbuild/protobuf";
import type { Plugin } from "esbuild";
import type { DefaultValue, EncodedDesc, Reference } from "./ready-file.ts";

/** Matches the descriptor of a file in code that protoc-gen-es has generated: base64 of its binary form. */
const FILE_DESC = /\bfileDesc\("[A-Za-z0-9+/=]*"/;
const READY_FILE = join(import.meta.dirname, "ready-file.ts");

/**
 * Puts the descriptors of generated code into the bundle in decoded form. Decoding them would cost each start of the
 * agent 2 MiB and 13 ms of CPU time, 7 ms of them before the workload starts: the library first has to build the
 * descriptor of descriptors.
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

type Values = Readonly<Record<string, unknown>>;

/**
 * The descriptor of a file and everything in it, as data. Throws for features that our schema does not use, such as
 * custom defaults.
 */
export function encodeFile(file: DescFile): EncodedDesc[] {
  const own: AnyDesc[] = [];
  collect(file, file, own);
  const numbers = new Map(own.map((desc, number) => [desc, number]));
  const reference = (desc: AnyDesc): Reference => {
    const number = numbers.get(desc);
    if (number !== undefined) return number;
    if (desc.kind === "message" || desc.kind === "enum") return desc.typeName;
    if (desc.kind === "file") return desc.name;
    throw new Error(`${file.name} refers to ${desc.toString()} of another file`);
  };
  return own.map((desc) => encode(desc, reference));
}

/** Collects a descriptor and everything that it contains. */
function collect(desc: AnyDesc, file: DescFile, into: AnyDesc[]): void {
  if (into.includes(desc) || fileOf(desc) !== file) return;
  into.push(desc);
  for (const value of Object.values(desc) as unknown[]) {
    for (const part of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (isDesc(part)) collect(part, file, into);
    }
  }
}

function fileOf(desc: AnyDesc): DescFile {
  if (desc.kind === "file") return desc;
  return "parent" in desc && !("file" in desc) ? desc.parent.file : desc.file;
}

function encode(desc: AnyDesc, reference: (desc: AnyDesc) => Reference): EncodedDesc {
  const plain: Record<string, unknown> = {};
  const one: Record<string, Reference> = {};
  const many: Record<string, Reference[]> = {};
  const named: Record<string, Record<string, Reference>> = {};
  let zero: DefaultValue | undefined;
  for (const [name, value] of Object.entries(desc) as [string, unknown][]) {
    if (name === "toString" || value === undefined) continue;
    // At run time, the library reads only these two fields of the message from which the descriptor was made.
    if (name === "proto") plain[name] = { name: (value as Values)["name"], package: (value as Values)["package"] };
    else if (name === "getDefaultValue") zero = encodeDefault((value as () => unknown)());
    else if (isDesc(value)) one[name] = reference(value);
    else if (Array.isArray(value)) many[name] = (value as AnyDesc[]).map(reference);
    else if (isObject(value)) {
      named[name] = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, reference(part as AnyDesc)]));
    } else if (typeof value === "function") throw new Error(`${desc.toString()}: ${name} is a function`);
    else plain[name] = value;
  }
  return { plain, one, many, named, text: desc.toString(), ...(zero !== undefined && { zero }) };
}

function encodeDefault(value: unknown): DefaultValue {
  if (value === undefined) return "none";
  if (value === false || typeof value === "number") return { value };
  throw new Error("a field has a default value of its own");
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function isDesc(value: unknown): value is AnyDesc {
  return isObject(value) && "kind" in value && "proto" in value;
}
