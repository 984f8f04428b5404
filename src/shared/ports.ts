/** The highest TCP port. */
export const LAST_PORT = 65_535;
