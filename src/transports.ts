/**
 * What is wrong with a place that names the transport of the runtime `sharedkernel`, alone or as `sharedkernel:…`;
 * undefined for every other place. The contract reserves its shape for a later tier, so it must not be taken for the name
 * of a host or a file (contract, "Transport by runtime").
 */
export function reservedTransport(place: string): string | undefined {
  return /^sharedkernel(?::|$)/.test(place)
    ? "names the transport sharedkernel, which is reserved for a later tier and has no backend yet"
    : undefined;
}
