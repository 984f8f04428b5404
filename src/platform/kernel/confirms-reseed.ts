/** Long-term kernels that got the generator of Linux 5.18, by major.minor: the first patch level that has it. */
const BACKPORTS: ReadonlyMap<string, number> = new Map([
  ["5.10", 119],
  ["5.15", 44],
]);

/**
 * Whether a forced reseed that reports success has happened, by the kernel's release. Since 5.18 it has. Before, the call
 * may report success for doing nothing, or for a reseed that left our bytes out; distributions' patches cannot be seen.
 */
export function confirmsReseed(release: string): boolean {
  const [, major, minor, patch] = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(release)?.map(Number) ?? [];
  if (major === undefined || minor === undefined) return false;
  if (major !== 5) return major > 5;
  const backportedIn = BACKPORTS.get(`${major}.${minor}`);
  return minor >= 18 || (backportedIn !== undefined && (patch ?? 0) >= backportedIn);
}
