import type { Addon } from "../native/index.ts";

/**
 * From now on this process's TLS servers ignore the validity times of client certificates and trust an intermediate
 * authority without its root. The server itself must refuse expired ones. False where this Node does not offer it: then
 * OpenSSL still refuses both.
 */
export function relaxClientCertificateChecks(addon: Addon): boolean {
  return addon.relaxCertificateChecks() === 1;
}
