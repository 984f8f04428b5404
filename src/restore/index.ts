export type { Arrival, ValidityWindow } from "./clock-duty.ts";
export { CredentialRotation, type CredentialRotationParts, type RotationCause } from "./credential-rotation.ts";
export { renewRandomness } from "./entropy-duty.ts";
export { type RenewedParts, Restore, type RestoreCall, type RestoreParts } from "./restore.ts";
