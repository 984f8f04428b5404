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
 * A message as a plain object, which JSON.stringify takes. Whole numbers above 2^53 are the nearest number. A time is a
 * Date, absent where there is none, and beside it are the nanoseconds within its second: a Date ends at the
 * millisecond, and where no Date holds the time it is the nearest.
 */
export type Plain<Fields> = {
  readonly [Name in keyof Fields as Name extends `$${string}` ? never : Name]: PlainValue<Fields[Name]>;
} & { readonly [Name in TimesOf<Fields> as `${Name}Nanos`]: number };

/** The message as a plain object. */
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

/** The last millisecond that a Date holds, on both sides of 1970 (ECMA-262, 21.4.1.1). */
const DATE_LIMIT_MS = 8.64e15;

function dateOf({ seconds, nanos }: Timestamp): Date {
  const ms = Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000);
  return new Date(Math.min(Math.max(ms, -DATE_LIMIT_MS), DATE_LIMIT_MS));
}

/** Whether a Date holds the time, to the millisecond. */
export function isDate({ seconds }: Timestamp): boolean {
  return Math.abs(Number(seconds)) * 1_000 < DATE_LIMIT_MS;
}

/** A time as messages have it. Undefined for no valid Date. */
export function timestampOf(time: Date, nanos?: number): Pick<Timestamp, "seconds" | "nanos"> | undefined {
  const ms = time.getTime();
  if (Number.isNaN(ms)) return undefined;
  const seconds = Math.floor(ms / 1_000);
  return { seconds: BigInt(seconds), nanos: nanos ?? (ms - seconds * 1_000) * 1_000_000 };
}
