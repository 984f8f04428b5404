export { CredentialRotation } from "./credential-rotation.ts";
export { renewRandomness } from "./entropy-duty.ts";
export { rehearsedDuties } from "./rehearsal.ts";
export { type RenewedParts, Restore, type RestoreCall, type RestoreParts } from "./restore.ts";
