import { type DescMessage, fromBinary, fromJsonString, type MessageShape } from "@bufbuild/protobuf";
import { jsonProblems } from "./json-problems.ts";

/** A decoded message, or what is wrong with the value; never both. */
export type DecodedSpec<Desc extends DescMessage> =
  | { readonly message: MessageShape<Desc> }
  | { readonly problems: readonly string[] };

/** Decodes a spec: proto3 JSON when it begins with `{`, else base64 (either alphabet) of the binary form. */
export function decodeSpec<Desc extends DescMessage>(schema: Desc, value: string): DecodedSpec<Desc> {
  const text = value.trim();
  // What is left of a variable or a file that somebody meant to fill; the message without any field is `{}`.
  if (text === "") return { problems: ["is blank; give it a spec or leave it out"] };
  return text.startsWith("{") ? decodeJson(schema, value) : decodeBase64(schema, value);
}

function decodeJson<Desc extends DescMessage>(schema: Desc, value: string): DecodedSpec<Desc> {
  let json: unknown;
  try {
    json = JSON.parse(value);
  } catch (error) {
    return { problems: [`is not valid JSON${positionOf(error)}`] };
  }
  const problems = jsonProblems(schema, json);
  if (problems.length > 0) return { problems };
  try {
    // From the text, not from the parsed value: only the text still shows a key that is there twice.
    return { message: fromJsonString(schema, value) };
  } catch {
    return { problems: [`is not the JSON form of ${schema.typeName}; a key may be there twice`] };
  }
}

function decodeBase64<Desc extends DescMessage>(schema: Desc, value: string): DecodedSpec<Desc> {
  const base64 = value.replace(/\s+/g, "");
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(base64)) {
    return { problems: ["is neither JSON (it does not begin with a brace) nor base64"] };
  }
  try {
    return { message: fromBinary(schema, Buffer.from(base64, "base64")) };
  } catch {
    return { problems: [`is not base64 of the binary form of ${schema.typeName}`] };
  }
}

/** Where JSON.parse stopped. Its own message quotes the text, and the text may hold secrets. */
function positionOf(error: unknown): string {
  const position = error instanceof Error ? /at position (\d+)/.exec(error.message)?.[1] : undefined;
  return position === undefined ? "" : ` (at character ${position})`;
}
