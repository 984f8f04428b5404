import { type Publication, type Sandboxes, type SandboxInfo, USUAL_LISTEN_PORT } from "../../sandboxes/index.ts";
import { type Answer, inSnakeCase, parseCount, parseWaitMs, printable, UsageError } from "../cli/index.ts";
import { LAST_PORT } from "../../../shared/ports.ts";

interface Values {
  readonly listen?: string | undefined;
  readonly wait?: string | undefined;
}

/** `sandbox publish NAME PORT HOSTNAME`. */
export async function publish(node: Sandboxes, words: readonly string[], values: Values): Promise<Answer> {
  const [name, port, hostname, ...more] = words;
  if (name === undefined || port === undefined || hostname === undefined || more.length > 0)
    throw new UsageError("sandbox publish requires a name, a port of the sandbox and a hostname");
  const timeoutMs = parseWaitMs(values.wait, "--wait");
  const made = await node.publish(name, portOf(port, "the port"), hostname, {
    listenPort: listenOf(values),
    timeoutMs,
  });
  const warning = made.warning === undefined ? "" : `; ${printable(made.warning)}`;
  const rest = timeoutMs === undefined ? warning || "; --wait checks that it is served" : "";
  return { text: `${publicationWords(made)} of ${name}${rest}\n`, json: publicationObject(made) };
}

/** `sandbox unpublish NAME HOSTNAME`. */
export async function unpublish(node: Sandboxes, words: readonly string[], values: Values): Promise<Answer> {
  const [name, hostname, ...more] = words;
  if (name === undefined || hostname === undefined || more.length > 0)
    throw new UsageError("sandbox unpublish requires a name and a hostname");
  await node.unpublish(name, hostname, listenOf(values));
  return { text: `${hostname} is unpublished\n`, json: { unpublished: hostname } };
}

/** A publication in JSON. */
export function publicationObject(publication: Publication): object {
  return inSnakeCase({ ingressId: undefined, ...publication });
}

/** The hostnames of a sandbox, for a cell of a table. */
export function publishedWords({ published = [] }: SandboxInfo): string {
  return published.map(publicationWords).join(", ") || "-";
}

function publicationWords({ hostname, listenPort, port, ingressId }: Publication): string {
  const host = listenPort === USUAL_LISTEN_PORT ? hostname : `${hostname}:${listenPort}`;
  return `${host} -> ${port}${ingressId === undefined ? " (half made)" : ""}`;
}

function listenOf({ listen }: Values): number | undefined {
  return listen === undefined ? undefined : portOf(listen, "--listen");
}

function portOf(text: string, what: string): number {
  const port = parseCount(text, what, 1) ?? 0;
  if (port > LAST_PORT) throw new UsageError(`${what} requires a number from 1 to ${LAST_PORT}`);
  return port;
}
