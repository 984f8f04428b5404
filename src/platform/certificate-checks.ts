import type { Addon } from "../native/index.ts";

/**
 * From now on this process's TLS servers accept client certificates whatever their time, and trust an intermediate
 * authority without its root; whoever serves must refuse the expired ones. False where this Node does not offer it: then OpenSSL goes on to refuse both.
 */
export function relaxClientCertificateChecks(addon: Addon): boolean {
  return addon.relaxCertificateChecks("ssl_client") === 1;
}
