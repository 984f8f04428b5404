export {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueFolder,
  prepareFolder,
  readClientCredentials,
  readToken,
} from "./folder.ts";
