/** The highest TCP port. */
export const LAST_PORT = 65_535;
/** The highest vsock port. The next number is not a port: VMADDR_PORT_ANY means any port (vsock(7)). */
export const LAST_VSOCK_PORT = 4_294_967_294;
