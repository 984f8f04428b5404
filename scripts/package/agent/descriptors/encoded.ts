/** A descriptor of the same file by its number, or one of an imported file by its type's or the file's name. */
export type Reference = number | string;

/** What getDefaultValue returns; "none": undefined. */
export type DefaultValue = "none" | "bigint" | "bytes" | { readonly value: string | boolean | number };

/** A descriptor as data. */
export interface EncodedDesc {
  readonly plain: Readonly<Record<string, unknown>>;
  /** Properties that are one descriptor, an array of them, or an object of them. */
  readonly one: Readonly<Record<string, Reference>>;
  readonly many: Readonly<Record<string, readonly Reference[]>>;
  readonly named: Readonly<Record<string, Readonly<Record<string, Reference>>>>;
  /** What toString returns. */
  readonly text: string;
  /** Absent: there is no getDefaultValue. */
  readonly zero?: DefaultValue;
}
