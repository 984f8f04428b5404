import { type Listener, PORTS_LISTED, type SocketHolder, type Sockets } from "../domain/index.ts";

/** A listener, and the process that holds it, if /proc tells (message ListeningPort). */
export interface ListeningPort extends Listener {
  readonly holder: SocketHolder | undefined;
}

/** What listens, in the order of the ports (message ListPortsResponse). The same object as long as nothing changes. */
export interface PortList {
  readonly ports: ReadonlyMap<number, ListeningPort>;
  readonly truncated: boolean;
}

/** What has changed from one list to the next (message WatchPortsResponse). */
export interface PortChanges {
  readonly full: boolean;
  readonly ports: readonly ListeningPort[];
  readonly closed: readonly ListeningPort[];
  readonly truncated: boolean;
}

/** Gathers the listeners of one poll: never more than twice as many as a list has. */
export class Gathering {
  #byInode = new Map<number, Listener>();
  #truncated = false;

  take(listener: Listener): void {
    this.#byInode.set(listener.inode, listener);
    if (this.#byInode.size >= 2 * PORTS_LISTED) this.#cut();
  }

  /** The list, made of the same parts as the one before where those have not changed. */
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

  /** Always the same ports stay, or those that a full list leaves out would come and go. */
  #cut(): void {
    const sorted = [...this.#byInode].toSorted(
      ([, one], [, other]) => one.port - other.port || one.inode - other.inode,
    );
    this.#truncated ||= sorted.length > PORTS_LISTED;
    this.#byInode = new Map(sorted.slice(0, PORTS_LISTED));
  }
}

/** What to tell somebody who has been told `before`; undefined: nothing. */
export function changesOf(before: PortList | undefined, after: PortList): PortChanges | undefined {
  if (before === after) return undefined;
  const ports = [...after.ports.values()].filter((port) => before?.ports.get(port.inode) !== port);
  const closed = [...(before?.ports.values() ?? [])].filter(({ inode }) => !after.ports.has(inode));
  return { full: before === undefined, ports, closed, truncated: after.truncated };
}

function key({ port, address, uid, holder }: ListeningPort): string {
  return `${address} ${port} ${uid} ${holder?.pid} ${holder?.command}`;
}
