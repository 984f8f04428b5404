import { SpawnError } from "../../domain/index.ts";

/** Byte strings one after another, each ended by a NUL, as the addon takes them. A NUL inside would split one in two. */
export function block(strings: readonly Uint8Array[]): Uint8Array {
  const sizeBytes = strings.reduce((sum, bytes) => sum + bytes.length + 1, 0);
  const packed = new Uint8Array(sizeBytes);
  let at = 0;
  for (const bytes of strings) {
    packed.set(bytes, at);
    at += bytes.length + 1;
  }
  let nuls = 0;
  for (const byte of packed) if (byte === 0) nuls += 1;
  if (nuls !== strings.length) throw new SpawnError("prepare", "EINVAL");
  return packed;
}
