/**
 * Returns the problem of an address of the form `sharedkernel` or `sharedkernel:…`; undefined for any other address.
 * The contract reserves this form for a transport ("Transport by runtime"), so a host or file must not have such a
 * name.
 */
export function reservedTransport(place: string): string | undefined {
  return /^sharedkernel(?::|$)/.test(place)
    ? "names the transport sharedkernel, which is reserved for a later tier and has no backend yet"
    : undefined;
}
