import { isAbsolute } from "node:path";
import { type Context, type Contexts, isContextName } from "./context.ts";

/** The file's names of a context's fields. */
const FIELDS = { address: "address", bridge: "bridge", credentials: "credentials", serverName: "server_name" } as const;

/** Reads the text of a contexts file. Throws Error that says which field is wrong. */
export function parseContexts(text: string): Contexts {
  const root = objectOf(JSON.parse(text), "the whole of it", ["current", "contexts"]);
  const { current, contexts = {} } = root;
  if (current !== undefined && typeof current !== "string") throw new Error("current is no text");
  const entries = Object.entries(objectOf(contexts, "contexts"));
  return { current, byName: new Map(entries.map(([name, value]) => [name, parseContext(name, value)])) };
}

/** The text of a contexts file. */
export function formatContexts({ current, byName }: Contexts): string {
  const contexts = Object.fromEntries([...byName].map(([name, context]) => [name, contextObject(context)]));
  return `${JSON.stringify({ current, contexts }, undefined, 2)}\n`;
}

/** A context as it is in the file and in JSON output. */
export function contextObject(context: Context): Readonly<Record<string, string>> {
  const object: Record<string, string> = {};
  for (const [key, name] of Object.entries(FIELDS)) {
    const value = context[key as keyof Context];
    if (value !== undefined) object[name] = value;
  }
  return object;
}

function parseContext(name: string, value: unknown): Context {
  const at = `contexts.${name}`;
  if (!isContextName(name)) throw new Error(`${JSON.stringify(name)} is no name for a context`);
  const fields = objectOf(value, at, Object.values(FIELDS));
  for (const [field, content] of Object.entries(fields)) {
    if (typeof content !== "string" || content === "") throw new Error(`${at}.${field} is no text`);
  }
  const { address, bridge, credentials, server_name: serverName } = fields as Partial<Record<string, string>>;
  if ((address === undefined) === (bridge === undefined)) throw new Error(`${at} wants either address or bridge`);
  if (credentials === undefined) throw new Error(`${at}.credentials is missing`);
  if (!isAbsolute(credentials)) throw new Error(`${at}.credentials is no absolute path`);
  return { address, bridge, credentials, serverName };
}

/** @param known names that the object may have; any without it */
function objectOf(value: unknown, what: string, known?: readonly string[]): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${what} is no object`);
  const unknown = Object.keys(value).find((key) => known !== undefined && !known.includes(key));
  if (unknown !== undefined) throw new Error(`${what} has an unknown field ${JSON.stringify(unknown)}`);
  return value as Readonly<Record<string, unknown>>;
}
