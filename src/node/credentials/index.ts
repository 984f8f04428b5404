export {
  type ClientCredentials,
  CredentialsError,
  agentVariables,
  generateToken,
  prepareFolder,
  readClientCredentials,
  readToken,
  writeFolder,
} from "./folder.ts";
