export type { Connection, PeerCertificate } from "./connection.ts";
export { type AcceptedConnection, Acceptor, connectionOf } from "./connections.ts";
export { listenTcp, listenUnix } from "./listen.ts";
