export {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueFolder,
  isWhole,
  prepareFolder,
  readClientCredentials,
  readExpiry,
  readForRestore,
  readServerCertificate,
  readToken,
  type RestoreCredentials,
} from "./folder.ts";
