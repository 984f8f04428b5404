import type { Hypeman } from "@onkernel/hypeman";

/** A part of a hostname that leads to the instance of that name: "{instance}". */
const CAPTURE = /\{([A-Za-z_]\w*)\}/g;
const USUAL_PORT = 80;

/** Rules of the real one's ingresses, by file and line of hypeman 7a99231. */
export type Rule = Pick<Hypeman.IngressRule, "match" | "target">;

/** Why a rule is refused, in the real one's words (lib/ingress/types.go:236-300); undefined: it is taken. */
export function ruleProblem({ match: { hostname, port }, target }: Rule, n: number): string | undefined {
  if (hostname === "") return `hostname is required in rule ${n}`;
  if (isPattern(hostname)) {
    const problem = patternProblem(hostname);
    if (problem !== undefined) return `invalid hostname pattern in rule ${n}: ${problem}`;
    const wanted = capturesOf(target.instance);
    if (wanted.length === 0) return `pattern hostname in rule ${n} requires target.instance to reference a capture`;
    const unknown = wanted.find((each) => !capturesOf(hostname).includes(each));
    if (unknown !== undefined) return `target.instance in rule ${n} references unknown capture {${unknown}}`;
  } else if (hostname.startsWith("*")) return `wildcard hostnames are not supported in rule ${n}`;
  if (port !== undefined && port !== 0 && !isPort(port)) return `match.port must be between 1 and 65535 in rule ${n}`;
  if (target.instance === "") return `instance is required in rule ${n}`;
  if (!isPort(target.port)) return `target.port must be between 1 and 65535 in rule ${n}`;
  return undefined;
}

export function isPattern(hostname: string): boolean {
  return capturesOf(hostname).length > 0;
}

/** The host's port that a rule is for. */
export function listenPortOf({ match: { port } }: Rule): number {
  return port === undefined || port === 0 ? USUAL_PORT : port;
}

/**
 * The rule for a request's Host, without its port (lib/ingress/config.go:174-192: exact hostnames come before patterns), and the
 * name of the instance that it leads to.
 */
export function ruleFor(
  rules: readonly Rule[],
  host: string,
): { readonly rule: Rule; readonly instance: string } | undefined {
  const name = host.replace(/:\d+$/, "").toLowerCase();
  const exact = rules.find(({ match }) => !isPattern(match.hostname) && match.hostname.toLowerCase() === name);
  if (exact !== undefined) return { rule: exact, instance: exact.target.instance };
  for (const rule of rules.filter(({ match }) => isPattern(match.hostname))) {
    const captured = capturedBy(rule.match.hostname, name);
    if (captured === undefined) continue;
    return { rule, instance: rule.target.instance.replace(CAPTURE, (_, key: string) => captured.get(key) ?? "") };
  }
  return undefined;
}

/** The parts of a hostname that a pattern's captures stand for; undefined: it does not fit. */
function capturedBy(pattern: string, name: string): ReadonlyMap<string, string> | undefined {
  const labels = name.split(".");
  const parts = pattern.split(".");
  if (labels.length !== parts.length) return undefined;
  const captured = new Map<string, string>();
  for (const [n, part] of parts.entries()) {
    const label = labels[n] ?? "";
    const [capture] = capturesOf(part);
    if (capture === undefined ? part.toLowerCase() !== label : label === "") return undefined;
    if (capture !== undefined) captured.set(capture, label);
  }
  return captured;
}

/** lib/ingress/types.go:146-188. */
function patternProblem(hostname: string): string | undefined {
  const parts = hostname.split(".");
  if (parts.length < 2) return `hostname pattern "${hostname}" must have at least two parts`;
  const mixed = parts.find((part) => capturesOf(part).length > 0 && !/^\{\w+\}$/.test(part));
  if (mixed !== undefined) return `mixed captures like "${mixed}" are not supported, use pure captures like {name}`;
  const captures = capturesOf(hostname);
  const twice = captures.find((capture, n) => captures.indexOf(capture) !== n);
  return twice === undefined ? undefined : `duplicate capture name "${twice}" in pattern`;
}

function capturesOf(text: string): string[] {
  return Array.from(text.matchAll(CAPTURE), ([, name = ""]) => name);
}

function isPort(port: number): boolean {
  return port >= 1 && port <= 65_535;
}
