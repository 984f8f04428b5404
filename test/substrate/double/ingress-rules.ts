import type { Hypeman } from "@onkernel/hypeman";

const USUAL_PORT = 80;

/** Rules of the real one's ingresses, by file and line of hypeman 8853445. */
export type Rule = Pick<Hypeman.IngressRule, "match" | "target">;

/** Why a rule is refused, in the real one's words (lib/ingress/types.go:236-300); undefined: it is taken. */
export function ruleProblem({ match: { hostname, port }, target }: Rule, n: number): string | undefined {
  if (hostname === "") return `hostname is required in rule ${n}`;
  // The real one has them; no sandbox of ours may be published by one.
  if (hostname.includes("{")) return `hostname patterns are not served by the development substrate: rule ${n}`;
  if (hostname.startsWith("*")) return `wildcard hostnames are not supported in rule ${n}`;
  if (port !== undefined && port !== 0 && !isPort(port)) return `match.port must be between 1 and 65535 in rule ${n}`;
  if (target.instance === "") return `instance is required in rule ${n}`;
  if (!isPort(target.port)) return `target.port must be between 1 and 65535 in rule ${n}`;
  return undefined;
}

/** The host's port that a rule is for. */
export function listenPortOf({ match: { port } }: Rule): number {
  return port === undefined || port === 0 ? USUAL_PORT : port;
}

function isPort(port: number): boolean {
  return port >= 1 && port <= 65_535;
}
