import { type DescEnum, type DescMessage, isMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

/** Kind of a command. "unknown" means that this client does not know it. */
export type CommandKind = "workload" | "kept" | "attached" | "unknown";

/**
 * Which processes a figure includes. "tree": all processes of the command, even those that have ended. "process": the
 * command's own process, and those of its descendants that it has waited for (getrusage(2)). "unknown": the figure is
 * not known.
 */
export type UsageScope = "tree" | "process" | "unknown";

/**
 * From where a port can be reached. "loopback": only from inside the guest, which includes tunnels. "any": at all
 * addresses of the guest. "address": only at one address of the guest that is not a loopback address; tunnels do not
 * reach it. "unknown": the agent could not determine it.
 */
export type PortScope = "loopback" | "any" | "address" | "unknown";

/** The enum fields of all messages that `plain` converts, each with the names of its values. */
interface EnumFields {
  readonly kind: CommandKind;
  readonly scope: PortScope;
  readonly cpuScope: UsageScope;
  readonly peakMemoryScope: UsageScope;
}

/** The name of an enum's value 0, which means "not given" in protobuf, and of every value that only a newer agent knows. */
const UNKNOWN = "unknown";

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
 * A protobuf message as a plain object that JSON.stringify accepts:
 *
 * - An integer above 2^53 is rounded to the nearest number.
 * - An enum becomes the name of its value in lower case, or "unknown".
 * - A timestamp becomes a Date, or the nearest Date if Date cannot express the time. A Date has only milliseconds, so
 *   another field, whose name ends in `Nanos`, has the nanoseconds since the last full second. If the message has no
 *   timestamp, the Date is absent and the `Nanos` field is 0.
 */
export type Plain<Fields> = {
  readonly [Name in keyof Fields as Name extends `$${string}` ? never : Name]: Name extends keyof EnumFields
    ? EnumFields[Name]
    : PlainValue<Fields[Name]>;
} & { readonly [Name in TimesOf<Fields> as `${Name}Nanos`]: number };

/** Converts a message to a plain object, in which a value that the schema does not know is "unknown". */
export function plain<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Plain<MessageShape<Desc>> {
  const values = new Map<string, unknown>(Object.entries(message));
  const entries = schema.fields.flatMap(({ localName, message: type, enum: names }): [string, unknown][] => {
    const value = values.get(localName);
    const nanos: [string, unknown][] =
      type?.typeName === TimestampSchema.typeName
        ? [[`${localName}Nanos`, (value as Timestamp | undefined)?.nanos ?? 0]]
        : [];
    return value === undefined
      ? nanos
      : [[localName, names ? nameOf(names, value) : plainValue(type, value)], ...nanos];
  });
  return Object.fromEntries(entries) as Plain<MessageShape<Desc>>;
}

function nameOf({ value: values }: DescEnum, value: unknown): string {
  return typeof value !== "number" || value === 0 ? UNKNOWN : (values[value]?.localName.toLowerCase() ?? UNKNOWN);
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
