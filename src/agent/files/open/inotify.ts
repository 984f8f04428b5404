import type { Addon } from "../../native/index.ts";
import { failureOf } from "../threads/steps.ts";
import type { FileWork } from "../threads/work.ts";
import { Descriptor } from "./descriptor.ts";

/** Events and flags of inotify(7). */
export const IN = {
  MODIFY: 0x2,
  ATTRIB: 0x4,
  CLOSE_WRITE: 0x8,
  MOVED_FROM: 0x40,
  MOVED_TO: 0x80,
  CREATE: 0x100,
  DELETE: 0x200,
  MOVE_SELF: 0x800,
  UNMOUNT: 0x2000,
  Q_OVERFLOW: 0x4000,
  IGNORED: 0x8000,
  ONLYDIR: 0x01000000,
  EXCL_UNLINK: 0x04000000,
  MASK_ADD: 0x20000000,
  ISDIR: 0x40000000,
} as const;

/** struct inotify_event of inotify(7). */
export interface InotifyEvent {
  readonly watch: number;
  readonly mask: number;
  readonly cookie: number;
  /** Name of the entry in the watched directory; empty for the directory itself. Each character is a byte. */
  readonly name: string;
}

const HEAD_BYTES = 16;
/**
 * Buffer for one read. It has room for far fewer events than the 16,384 that the kernel queues, so that other calls can
 * run between two reads.
 */
const BUFFER: Buffer = Buffer.allocUnsafeSlow(64 * 1024);
const LONGEST_EVENT_BYTES: number = HEAD_BYTES + 256;

/** An instance of inotify(7), read without blocking. Disposing of it removes all of its watches. */
export class Inotify implements AsyncDisposable {
  /**
   * The inotify instance. It is not closed while a thread adds watches to it. Closing it also runs on a thread, because
   * close(2) takes long if there are many watches.
   */
  readonly descriptor: Descriptor;
  readonly #addon: Addon;
  readonly #readable: InstanceType<Addon["FdWatch"]>;
  #isArmed = false;

  /** @param onReadable is called once after each `arm`, when there are events to read */
  constructor(work: FileWork, onReadable: () => void) {
    const { addon } = work;
    const fd = addon.openInotify();
    if (fd < 0) throw failureOf(fd, "watch");
    this.descriptor = new Descriptor(fd, work);
    this.#addon = addon;
    this.#readable = new addon.FdWatch(addon.duplicate(fd), () => {
      this.#isArmed = false;
      onReadable();
    });
  }

  /** Waits for events, and then gathers further events for `gatherMs`. Does nothing if it waits already. */
  arm(gatherMs: number): void {
    if (!this.#isArmed) this.#readable.readableOnce(gatherMs);
    this.#isArmed = true;
  }

  /** Reads queued events. `isEmpty` says whether all events of the kernel's queue were read. */
  read(): { readonly events: InotifyEvent[]; readonly isEmpty: boolean } {
    const events: InotifyEvent[] = [];
    const end = this.#addon.read(this.descriptor.fd, BUFFER, 0, BUFFER.length);
    for (let at = 0; at < end;) {
      const nameAt = at + HEAD_BYTES;
      const next = nameAt + BUFFER.readUInt32LE(at + 12);
      const nul = BUFFER.indexOf(0, nameAt);
      const name = next === nameAt ? "" : BUFFER.toString("latin1", nameAt, Math.min(next, nul));
      const [mask, cookie] = [BUFFER.readUInt32LE(at + 4), BUFFER.readUInt32LE(at + 8)];
      events.push({ watch: BUFFER.readInt32LE(at), mask, cookie, name });
      at = next;
    }
    return { events, isEmpty: end < BUFFER.length - LONGEST_EVENT_BYTES };
  }

  unwatch(watch: number): void {
    this.#addon.unwatch(this.descriptor.fd, watch);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#readable.close();
    await this.descriptor[Symbol.asyncDispose]();
  }
}
