import type { VerifyPeer } from "./listener.ts";

/**
 * Refuses certificates that have expired by the guest clock. Those that are not valid yet pass: the clock of a restored
 * guest is behind, and the very call that sets it must get through.
 */
export const refuseExpired: VerifyPeer = (certificate, nowMs) =>
  nowMs >= certificate.notAfterMs ? "CERT_HAS_EXPIRED" : undefined;
