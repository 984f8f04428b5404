export {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueCredentials,
  isWhole,
  prepareDirectory,
  readClientCredentials,
  readExpiry,
  readForRestore,
  readServerCertificate,
  readToken,
  type RestoreCredentials,
} from "./directory.ts";
