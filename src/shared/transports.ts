/**
 * The problem with an address that names the transport of the runtime `sharedkernel`, alone or as `sharedkernel:…`;
 * undefined for any other address. The contract reserves this form, so it must not count as the name of a host or a
 * file (contract, "Transport by runtime").
 */
export function reservedTransport(place: string): string | undefined {
  return /^sharedkernel(?::|$)/.test(place)
    ? "names the transport sharedkernel, which is reserved for a later tier and has no backend yet"
    : undefined;
}
