export {
  type AcceptedConnection,
  Acceptor,
  type Connection,
  connectionOf,
  type PeerCertificate,
} from "./connections.ts";
export { checkUnix, listenError, listenUnix, type TcpPlace } from "./listen.ts";
