/**
 * Returns the problem of an address of the form `sharedkernel` or `sharedkernel:…`; undefined for any other address.
 * The contract reserves this form for a transport, so it must not be used as the name of a host or file (contract,
 * "Transport by runtime").
 */
export function reservedTransport(place: string): string | undefined {
  return /^sharedkernel(?::|$)/.test(place)
    ? "names the transport sharedkernel, which is reserved for a later tier and has no backend yet"
    : undefined;
}
