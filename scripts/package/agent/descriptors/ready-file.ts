import type { AnyDesc, DescEnum, DescFile, DescMessage } from "@bufbuild/protobuf";

type Ready = Record<string, unknown>;

/** Replaces the library's fileDesc in the bundle: builds the descriptor of a file from the data of encodeFile. */
export function readyFile(json: string, imports: readonly DescFile[] = []): DescFile {
  const encoded = JSON.parse(json) as EncodedDesc[];
  const own: Ready[] = encoded.map(({ plain, text, zero }) => ({
    ...plain,
    toString: () => text,
    getDefaultValue: zero === undefined ? undefined : () => (zero === "none" ? undefined : zero.value),
  }));
  const foreign = new Map(imports.flatMap(typesOf));
  const find = (reference: Reference): unknown =>
    typeof reference === "number" ? own[reference] : foreign.get(reference);
  for (const [number, { one, many, named }] of encoded.entries()) {
    const desc = own[number];
    if (desc === undefined) continue;
    for (const name in one) desc[name] = find(one[name] ?? -1);
    for (const name in many) desc[name] = many[name]?.map(find);
    for (const name in named) desc[name] = mapValues(named[name] ?? {}, find);
  }
  return own[0] as unknown as DescFile;
}

function mapValues(references: Readonly<Record<string, Reference>>, find: (reference: Reference) => unknown): Ready {
  const values: Ready = {};
  for (const key in references) values[key] = find(references[key] ?? -1);
  return values;
}

/** The file and all its types, including nested ones, by name. */
function typesOf(file: DescFile): [string, AnyDesc][] {
  const found: [string, AnyDesc][] = [[file.name, file]];
  const add = (messages: readonly DescMessage[], enums: readonly DescEnum[]): void => {
    for (const type of enums) found.push([type.typeName, type]);
    for (const message of messages) {
      found.push([message.typeName, message]);
      add(message.nestedMessages, message.nestedEnums);
    }
  };
  add(file.messages, file.enums);
  return found;
}

/** Refers to a descriptor of the same file by its number, or to one of an imported file by the name of the type or file. */
export type Reference = number | string;

/** The result of getDefaultValue; "none" stands for undefined. */
export type DefaultValue = "none" | { readonly value: boolean | number };

/** A descriptor as data. */
export interface EncodedDesc {
  readonly plain: Readonly<Record<string, unknown>>;
  /** Properties whose value is one descriptor, an array of them, or an object of them. */
  readonly one: Readonly<Record<string, Reference>>;
  readonly many: Readonly<Record<string, readonly Reference[]>>;
  readonly named: Readonly<Record<string, Readonly<Record<string, Reference>>>>;
  /** The result of toString. */
  readonly text: string;
  /** Absent if the descriptor has no getDefaultValue. */
  readonly zero?: DefaultValue;
}
