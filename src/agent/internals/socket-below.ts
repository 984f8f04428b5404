/** `_parent` of a TLS socket: the accepted socket below it, to which a server has no public way. */
interface OverSocket {
  readonly _parent?: object | null;
}

/**
 * The accepted socket below a TLS socket, by which the listener finds its connection, and with it the address, limits
 * and place of the peer. Undefined without it: then TLS connections are closed, so that none escapes the limits.
 */
export function socketBelow(socket: object & OverSocket): object | undefined {
  return socket._parent ?? undefined;
}
