export { type Configuration, readBootstrap } from "./bootstrap.ts";
export { Credentials, tokenDigest } from "./credentials.ts";
export { NO_ANSWER_PROBLEM } from "./files.ts";
export {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type BootstrapFault,
  describeFault,
  describeUnknown,
  unknownVariables,
} from "./variables.ts";
