/** The scope that each operation asks for (hypeman 8853445, lib/scopes/scopes.go:203-290); others ask for none. */
const SCOPES: readonly (readonly [operation: RegExp, scope: string])[] = [
  [/^GET \/(?:health|capabilities|resources)$/, "resource:read"],
  [/^GET \/images/, "image:read"],
  [/^POST \/instances\/\{id\}\/snapshots$/, "snapshot:write"],
  [/^GET \/instances/, "instance:read"],
  [/^POST \/instances/, "instance:write"],
  [/^DELETE \/instances/, "instance:delete"],
  [/^GET \/snapshots/, "snapshot:read"],
  [/^POST \/snapshots/, "snapshot:write"],
  [/^DELETE \/snapshots/, "snapshot:delete"],
  [/^GET \/ingresses/, "ingress:read"],
  [/^POST \/ingresses/, "ingress:write"],
  [/^DELETE \/ingresses/, "ingress:delete"],
  [/^GET \/volumes/, "volume:read"],
  [/^POST \/volumes/, "volume:write"],
  [/^DELETE \/volumes/, "volume:delete"],
];

/** Names of all scopes. */
export const ALL_SCOPES: ReadonlySet<string> = new Set(SCOPES.map(([, scope]) => scope));

/** The scope that an operation such as "POST /instances/{id}/stop" asks for; undefined: none. */
export function scopeOf(operation: string): string | undefined {
  return SCOPES.find(([pattern]) => pattern.test(operation))?.[1];
}
