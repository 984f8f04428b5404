import { type Publication, type SandboxInfo, USUAL_LISTEN_PORT } from "../../sandboxes/index.ts";
import { inSnakeCase, parseCount, UsageError } from "../cli/index.ts";
import { LAST_PORT } from "../../../shared/ports.ts";

/** Converts a publication to JSON. */
export function publicationObject(publication: Publication): object {
  return inSnakeCase({ ingressId: undefined, ...publication });
}

/** Lists the hostnames of a sandbox in one cell of a table. */
export function publishedWords({ published = [] }: SandboxInfo): string {
  return published.map(publicationWords).join(", ") || "-";
}

/** Describes a publication, for example `app.example.com -> 8080`. */
export function publicationWords({ hostname, listenPort, port, ingressId }: Publication): string {
  const host = listenPort === USUAL_LISTEN_PORT ? hostname : `${hostname}:${listenPort}`;
  return `${host} -> ${port}${ingressId === undefined ? " (incomplete)" : ""}`;
}

/** Returns the port in --listen; undefined if the option was not given. Throws UsageError for an invalid port. */
export function listenOf({ listen }: { readonly listen?: string | undefined }): number | undefined {
  return listen === undefined ? undefined : portOf(listen, "--listen");
}

/** Parses a TCP port on the command line. Throws UsageError for an invalid port. `what` names the port in the message. */
export function portOf(text: string, what: string): number {
  const port = parseCount(text, what, 1) ?? 0;
  if (port > LAST_PORT) throw new UsageError(`${what} requires a number from 1 to ${LAST_PORT}`);
  return port;
}
