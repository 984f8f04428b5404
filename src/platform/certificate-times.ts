import type { Addon } from "../native/index.ts";

/**
 * From now on this process's TLS servers accept client certificates whatever their time; whoever serves must refuse the
 * expired ones. False where this Node does not offer it: then OpenSSL goes on to refuse by time.
 */
export function ignoreClientCertificateTimes(addon: Addon): boolean {
  return addon.ignoreCertificateTimes("ssl_client") === 1;
}
