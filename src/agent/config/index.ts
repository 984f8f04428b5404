export { type Configuration, readBootstrap } from "./bootstrap.ts";
export { NO_ANSWER_PROBLEM } from "./credential-reader.ts";
export { Credentials, tokenDigest } from "./credentials.ts";
export {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type BootstrapFault,
  describeFault,
  misspeltVariables,
} from "./variables.ts";
