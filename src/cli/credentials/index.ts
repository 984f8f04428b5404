export {
  type InstanceCertificates,
  issueCertificates,
  type PemPair,
  SERVER_NAME,
  type Validity,
} from "./certificates.ts";
