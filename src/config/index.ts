export { type Configuration, readBootstrap } from "./bootstrap.ts";
export { Credentials } from "./credentials.ts";
export { BootstrapError, type BootstrapFault, describeFault } from "./faults.ts";
export type { TlsMaterial } from "./tls-material.ts";
export { BOOTSTRAP_VARIABLES, type BootstrapVariable } from "./variables.ts";
