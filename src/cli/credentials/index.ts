export { type InstanceCertificates, issueCertificates, type PemPair, type Validity } from "./certificates.ts";
export {
  agentVariables,
  type ClientCredentials,
  generateToken,
  prepareFolder,
  readClientCredentials,
  readToken,
  writeFolder,
} from "./folder.ts";
