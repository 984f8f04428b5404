import { MessageChannel, type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import type { LocalEntry } from "../local-tree.ts";
import type { FilterLink, OfferedEntry } from "./jobs.ts";

/**
 * Sends entries to the thread that runs the filter, and waits for its answers. Blocks the calling thread, because it
 * reads the local directory synchronously. The filter's thread can terminate the blocked thread.
 */
export function answersOf({ port, answers }: FilterLink, entries: readonly LocalEntry[]): readonly boolean[] {
  const count = new Int32Array(answers);
  const before = Atomics.load(count, 0);
  port.postMessage(entries.map(offered));
  Atomics.wait(count, 0, before);
  const received: { readonly message: readonly boolean[] } | undefined = receiveMessageOnPort(port);
  if (received === undefined) throw new Error("the thread with the filter has sent no answer");
  return received.message;
}

/**
 * Creates a link over which another thread asks which entries to copy. Calls `choose` for each question, and posts its
 * result to that thread. The caller must close `port`.
 *
 * If `choose` fails, `onFailure` is called, and the other thread waits for an answer forever. The caller must then end
 * that thread.
 *
 * @param choose called with the entries of one directory
 */
export function filterLink(
  choose: (entries: readonly OfferedEntry[]) => Promise<readonly boolean[]>,
  onFailure: (error: unknown) => void,
): { readonly link: FilterLink; readonly port: MessagePort } {
  const { port1, port2 } = new MessageChannel();
  const answers = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  const count = new Int32Array(answers);
  port1.on("message", (entries: readonly OfferedEntry[]) => {
    choose(entries).then((chosen) => {
      // Post the message before waking up the other thread, because that thread then reads the message without waiting
      // for one.
      port1.postMessage(chosen);
      Atomics.add(count, 0, 1);
      Atomics.notify(count, 0);
    }, onFailure);
  });
  return { link: { port: port2, answers }, port: port1 };
}

function offered({ name, stats }: LocalEntry): OfferedEntry {
  const type = stats.isFile()
    ? "file"
    : stats.isDirectory()
      ? "directory"
      : stats.isSymbolicLink()
        ? "symlink"
        : stats.isFIFO()
          ? "fifo"
          : stats.isSocket()
            ? "socket"
            : stats.isCharacterDevice()
              ? "character-device"
              : "block-device";
  const [size, mode, uid, gid] = [stats.size, stats.mode, stats.uid, stats.gid].map(Number) as [
    number,
    number,
    number,
    number,
  ];
  return { name, type, size: type === "file" ? size : 0, mode: mode & 0o7777, uid, gid, mtimeNs: stats.mtimeNs };
}
