/**
 * Watches a listening socket, beside whoever accepts its connections. `onLost` is told of connections that come while the
 * kernel gives no further descriptor, with its errno ("EMFILE", "ENFILE"). Returns what ends the watch; until then the socket
 * stays open. Where the socket cannot be watched, nothing is told.
 */
export type WatchArrivals = (fd: number, onLost: (errno: string) => void) => () => void;
