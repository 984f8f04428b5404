import type { AnyDesc, DescFile } from "@bufbuild/protobuf";
import type { DefaultValue, EncodedDesc, Reference } from "./ready-file.ts";

type Values = Readonly<Record<string, unknown>>;

/** A file's descriptor with all that is in it, as data. Throws for what our schema lacks, such as custom defaults. */
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

/** Collects a descriptor and then what it contains. */
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
    if (name === "proto") plain[name] = namesOf(value as Values);
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

/** The only fields of a descriptor's own message that the library reads at run time. */
function namesOf(proto: Values): Values {
  return { name: proto["name"], package: proto["package"] };
}

function encodeDefault(value: unknown): DefaultValue {
  if (value === undefined) return "none";
  if (value === 0n) return "bigint";
  if (value instanceof Uint8Array && value.length === 0) return "bytes";
  if (value === "" || value === false || typeof value === "number") return { value };
  throw new Error("a field has a default value of its own");
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function isDesc(value: unknown): value is AnyDesc {
  return isObject(value) && "kind" in value && "proto" in value;
}
