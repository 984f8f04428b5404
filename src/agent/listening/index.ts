export {
  type AcceptedConnection,
  Acceptor,
  type Connection,
  connectionOf,
  type PeerCertificate,
} from "./connections.ts";
export { listenUnix } from "./listen.ts";
