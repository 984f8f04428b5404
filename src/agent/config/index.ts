export { type Configuration, readBootstrap } from "./bootstrap.ts";
export { Credentials, type TlsMaterial } from "./credentials.ts";
export {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type BootstrapFault,
  describeFault,
  misspeltVariables,
} from "./variables.ts";
