import {
  create,
  type DescMessage,
  isMessage,
  type Message,
  type MessageInitShape,
  type MessageShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import {
  FileType as TypeNumber,
  FileTypeSchema,
  StatPathResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { HealthResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import type { EndedCommand, Health, CommandInfo, FileAttributes, FileType } from "../../client/index.ts";
import { exitObject } from "../terminal/index.ts";

/** Converts a message to JSON with the schema's field names; fields with default values are included. */
function messageObject<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): object {
  const fields = Object.entries(message).map(([name, value]: [string, unknown]) => [name, withYear(value)]);
  const sayable = create(schema, Object.fromEntries(fields) as MessageInitShape<Desc>);
  return toJson(schema, sayable, { alwaysEmitImplicit: true, useProtoFieldName: true }) as object;
}

const FIRST_SECOND = BigInt(Date.parse("0001-01-01T00:00:00Z") / 1000);
const LAST_SECOND = BigInt(Date.parse("9999-12-31T23:59:59Z") / 1000);

/** Clamps a time to the years 1 to 9999. The times of files may be outside this range, but JSON cannot represent them. */
function withYear(value: unknown): unknown {
  if (!isMessage(value, TimestampSchema)) return value;
  const { seconds, nanos } = value;
  const nearest = seconds < FIRST_SECOND ? FIRST_SECOND : seconds > LAST_SECOND ? LAST_SECOND : seconds;
  return create(TimestampSchema, { seconds: nearest, nanos: Math.min(Math.max(nanos, 0), 999_999_999) });
}

/** Converts an answer of the client library, with its dates and 64-bit numbers, to the JSON form of the message. */
export function schemaObject(schema: DescMessage, answer: object): object {
  return messageObject(schema, inMessage(schema, answer));
}

function inMessage(schema: DescMessage, answer: object): Message {
  const given = new Map<string, unknown>(Object.entries(answer));
  const fields = schema.fields.flatMap(({ localName, scalar, message, enum: names }): [string, unknown][] => {
    const value = given.get(localName);
    if (value === undefined) return [];
    if (value instanceof Date) return [[localName, timestampOf(value, Number(given.get(`${localName}Nanos`)))]];
    if (message !== undefined)
      return [
        [
          localName,
          Array.isArray(value)
            ? value.map((item: object) => inMessage(message, item))
            : inMessage(message, value as object),
        ],
      ];
    if (names !== undefined && typeof value === "string") {
      // The library's name for the enum value 0 is "unknown", which is not its name in the schema.
      const known = names.values.find((each) => each.localName.toLowerCase() === value);
      return [[localName, known?.number ?? 0]];
    }
    const isLarge = scalar === ScalarType.UINT64 || scalar === ScalarType.INT64;
    return [[localName, isLarge ? BigInt(value as number | string) : value]];
  });
  return create(schema, Object.fromEntries(fields));
}

function timestampOf(time: Date, nanos: number): Timestamp {
  return create(TimestampSchema, { seconds: BigInt(Math.floor(time.getTime() / 1_000)), nanos });
}

/** Converts the health of a guest to JSON with the schema's field names (HealthResponse). */
export function healthObject(health: Health): object {
  return schemaObject(HealthResponseSchema, health);
}

/**
 * Converts the attributes of a path to JSON with the schema's field names (StatPathResponse). For a time that JSON
 * cannot represent, adds the seconds since 1970 as text, for example "mtime_seconds".
 */
export function attributesObject(given: FileAttributes): object {
  const attributes = { ...given, type: typeNumber(given.type) };
  const seconds = (["mtime", "atime", "ctime"] as const).flatMap((name) => {
    const text = attributes[`${name}Seconds`] ?? secondsText(attributes[name]);
    const isSayable = text === undefined || (BigInt(text) >= FIRST_SECOND && BigInt(text) <= LAST_SECOND);
    return isSayable ? [] : [[`${name}_seconds`, text]];
  });
  return { ...schemaObject(StatPathResponseSchema, attributes), ...(Object.fromEntries(seconds) as object) };
}

/** Returns the schema's number for a file type. */
function typeNumber(type: FileType): TypeNumber {
  return type === "file" ? TypeNumber.REGULAR : (TYPES.get(type) ?? TypeNumber.UNSPECIFIED);
}

/** Maps the library's name of each file type, such as "character-device", to the schema's number (CHARACTER_DEVICE). */
const TYPES: ReadonlyMap<string, TypeNumber> = new Map(
  FileTypeSchema.values.map(({ localName, number }): [string, TypeNumber] => [
    localName.toLowerCase().replaceAll("_", "-"),
    number as TypeNumber,
  ]),
);

/** Returns the schema's name for a file type. */
export function typeName(type: FileType): string | undefined {
  return FileTypeSchema.value[typeNumber(type)]?.name;
}

function secondsText(time: Date | undefined): string | undefined {
  return time === undefined ? undefined : String(Math.floor(time.getTime() / 1_000));
}

/** Converts a kept command to JSON with the schema's field names. Only `exit` has the form that "exec --json" uses. */
export function keptObject(schema: DescMessage, { exit, ...exec }: CommandInfo | EndedCommand): object {
  return { ...schemaObject(schema, exec), ...(exit && { exit: exitObject(exit) }) };
}
