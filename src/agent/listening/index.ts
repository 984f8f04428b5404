export {
  type AcceptedConnection,
  Acceptor,
  type Connection,
  connectionOf,
  type PeerCertificate,
} from "./connections.ts";
export { checkUnix, listenError, listenUnix, type TcpAddress } from "./listen.ts";
