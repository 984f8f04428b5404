export { type InstanceCertificates, issueCertificates, type PemPair, type Validity } from "./issue.ts";
