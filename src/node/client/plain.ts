import { type DescMessage, isMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

type TimesOf<Fields> = {
  [Name in keyof Fields]-?: NonNullable<Fields[Name]> extends Timestamp ? Name & string : never;
}[keyof Fields];

type PlainValue<Value> = Value extends bigint
  ? number
  : Value extends Uint8Array
    ? Buffer
    : Value extends Timestamp
      ? Date
      : Value extends readonly (infer Item)[]
        ? readonly PlainValue<Item>[]
        : Value extends Message
          ? Plain<Value>
          : Value;

/**
 * A protobuf message as a plain object that JSON.stringify accepts. Integers above 2^53 are rounded to the nearest
 * number. A timestamp becomes a Date; a timestamp that is absent from the message is absent from the object, too.
 * Because a Date has only milliseconds, there is a second field, whose name ends in `Nanos`, with the nanoseconds since
 * the last full second. A time that Date cannot express becomes the nearest Date.
 */
export type Plain<Fields> = {
  readonly [Name in keyof Fields as Name extends `$${string}` ? never : Name]: PlainValue<Fields[Name]>;
} & { readonly [Name in TimesOf<Fields> as `${Name}Nanos`]: number };

/** Converts a message to a plain object. */
export function plain<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Plain<MessageShape<Desc>> {
  const values = new Map<string, unknown>(Object.entries(message));
  const entries = schema.fields.flatMap(({ localName, message: type }): [string, unknown][] => {
    const value = values.get(localName);
    const nanos: [string, unknown][] =
      type?.typeName === TimestampSchema.typeName
        ? [[`${localName}Nanos`, (value as Timestamp | undefined)?.nanos ?? 0]]
        : [];
    return value === undefined ? nanos : [[localName, plainValue(type, value)], ...nanos];
  });
  return Object.fromEntries(entries) as Plain<MessageShape<Desc>>;
}

function plainValue(type: DescMessage | undefined, value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (isMessage(value, TimestampSchema)) return dateOf(value);
  if (Array.isArray(value)) return value.map((item) => plainValue(type, item));
  return type === undefined ? value : plain(type, value as Message);
}

/** Range of a Date: this many milliseconds before and after 1970 (ECMA-262, 21.4.1.1). */
const DATE_LIMIT_MS = 8.64e15;

/** The time as a Date; the nearest Date if it is out of the range of Date. */
export function dateOf({ seconds, nanos }: Pick<Timestamp, "seconds" | "nanos">): Date {
  const ms = Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000);
  return new Date(Math.min(Math.max(ms, -DATE_LIMIT_MS), DATE_LIMIT_MS));
}

/** Whether the time is within the range of Date. */
export function isDate({ seconds }: Pick<Timestamp, "seconds">): boolean {
  return Math.abs(Number(seconds)) * 1_000 < DATE_LIMIT_MS;
}

/** A Date as the fields of a Timestamp; undefined if the Date is invalid. */
export function timestampOf(time: Date, nanos?: number): Pick<Timestamp, "seconds" | "nanos"> | undefined {
  const ms = time.getTime();
  if (Number.isNaN(ms)) return undefined;
  const seconds = Math.floor(ms / 1_000);
  return { seconds: BigInt(seconds), nanos: nanos ?? (ms - seconds * 1_000) * 1_000_000 };
}
