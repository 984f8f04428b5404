export {
  agentVariables,
  type ClientCredentials,
  generateToken,
  prepareFolder,
  readClientCredentials,
  readToken,
  writeFolder,
} from "./folder.ts";
