export { CredentialRotation } from "./credential-rotation.ts";
export { renewRandomness } from "./entropy-duty.ts";
export { rehearse, rehearsedDuties } from "./rehearsal.ts";
export { type RenewedParts, Restore, type RestoreCall, type RestoreParts } from "./restore.ts";
export { SpecRenewal } from "./spec-renewal.ts";
export { DutyQueue } from "./duty-queue.ts";
