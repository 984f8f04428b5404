export { CredentialRotation } from "./credential-rotation.ts";
export { renewRandomness } from "./entropy-duty.ts";
export { type RenewedParts, Restore, type RestoreCall } from "./restore.ts";
