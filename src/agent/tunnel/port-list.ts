import { type Listener, PORTS_LISTED, type SocketHolder, type Sockets } from "../domain/index.ts";

/** A listener and, if /proc shows it, the process that holds the socket (message ListeningPort). */
export interface ListeningPort extends Listener {
  readonly holder: SocketHolder | undefined;
}

/** The listeners, sorted by port (message ListPortsResponse). The object is reused as long as nothing changes. */
export interface PortList {
  readonly ports: ReadonlyMap<number, ListeningPort>;
  readonly truncated: boolean;
}

/** The changes from one list to the next (message WatchPortsResponse). */
export interface PortChanges {
  readonly full: boolean;
  readonly ports: readonly ListeningPort[];
  readonly closed: readonly ListeningPort[];
  readonly truncated: boolean;
}

/** Collects the listeners of one poll. To bound memory, cuts them to PORTS_LISTED whenever there are twice as many. */
export class PortListBuilder {
  #byInode = new Map<number, Listener>();
  #truncated = false;

  take(listener: Listener): void {
    this.#byInode.set(listener.inode, listener);
    if (this.#byInode.size >= 2 * PORTS_LISTED) this.#cut();
  }

  /** Returns the list. Entries that have not changed since the list `before` are the same objects. */
  async listed(sockets: Sockets, before: PortList | undefined): Promise<PortList> {
    this.#cut();
    const holders = await sockets.holders(new Set(this.#byInode.keys()));
    let isSame = before?.truncated === this.#truncated && before.ports.size === this.#byInode.size;
    const ports = new Map<number, ListeningPort>();
    for (const [inode, listener] of this.#byInode) {
      const known = before?.ports.get(inode);
      const port = { ...listener, holder: holders.get(inode) };
      const isKnown = known !== undefined && key(known) === key(port);
      ports.set(inode, isKnown ? known : port);
      isSame &&= isKnown;
    }
    return isSame && before !== undefined ? before : { ports, truncated: this.#truncated };
  }

  /** Cuts the list to its limit. Keeps the lowest ports, so that two polls of the same listeners give the same list. */
  #cut(): void {
    const sorted = [...this.#byInode].toSorted(
      ([, one], [, other]) => one.port - other.port || one.inode - other.inode,
    );
    this.#truncated ||= sorted.length > PORTS_LISTED;
    this.#byInode = new Map(sorted.slice(0, PORTS_LISTED));
  }
}

/**
 * Returns the changes from the list `before`, which the client has received, to the list `after`; undefined if there
 * are none. If `before` is undefined, returns the whole list.
 */
export function changesOf(before: PortList | undefined, after: PortList): PortChanges | undefined {
  if (before === after) return undefined;
  const ports = [...after.ports.values()].filter((port) => before?.ports.get(port.inode) !== port);
  const closed = [...(before?.ports.values() ?? [])].filter(({ inode }) => !after.ports.has(inode));
  return { full: before === undefined, ports, closed, truncated: after.truncated };
}

function key({ port, address, uid, holder }: ListeningPort): string {
  return `${address} ${port} ${uid} ${holder?.pid} ${holder?.command}`;
}
