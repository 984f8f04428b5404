export {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueFolder,
  isWhole,
  prepareFolder,
  readClientCredentials,
  readExpiry,
  readServerCertificate,
  readToken,
} from "./folder.ts";
