/**
 * The thread that copies local files. It makes synchronous calls, which may block it, for example on a network file
 * system whose server does not answer.
 */
import { MessageChannel, type MessagePort, parentPort, workerData } from "node:worker_threads";
import { localTree } from "../local-tree.ts";
import type { TarEntry } from "../read.ts";
import { type Unpacked, unpackHere } from "../unpack.ts";
import { EntryReceiver } from "./entry-receiver.ts";
import { EntrySender } from "./entry-sender.ts";
import type { Bytes, EntryMessage, Job, Report } from "./jobs.ts";
import { LocalItems } from "./local-items.ts";
import { errorOf, plainError } from "./plain-error.ts";
import { type Batch, BatchWriter } from "./records.ts";

const port = parentPort;
if (port === null) throw new Error("this module must run in a thread");

function report(message: Report, transferred: (ArrayBuffer | MessagePort)[] = []): void {
  port?.postMessage(message, transferred);
}

function pathOf(root: string | Bytes): string | Buffer {
  return typeof root === "string" ? root : Buffer.from(root.buffer, root.byteOffset, root.length);
}

async function read({ root, options }: Extract<Job, { kind: "read" }>): Promise<void> {
  const sender = new EntrySender((batch) => report({ kind: "batch", batch }, [batch.bytes]));
  port?.on("message", (message: EntryMessage) => {
    if (message.kind === "acknowledged") sender.acknowledge(message.bytes);
  });
  const items = new LocalItems(pathOf(root), options);
  const error = await sender.send(items.all(), (name) => items.forget(name)).then(() => undefined, plainError);
  report({ kind: "end", error });
}

function measure({ root }: Extract<Job, { kind: "measure" }>): void {
  let totalBytes = 0;
  for (const entry of localTree(pathOf(root), { onUnreadable: () => undefined }))
    if (entry?.stats.isFile() === true) totalBytes += Number(entry.stats.size);
  report({ kind: "measured", totalBytes });
}

async function unpack(job: Extract<Job, { kind: "unpack" }>): Promise<void> {
  const { root, owners, umask, hasMissingFile, failFast } = job;
  const keepExisting = job.keepExisting && new Set(job.keepExisting);
  let done: Unpacked = { files: 0, bytes: 0 };
  let error;
  try {
    done = await unpackHere(pathOf(root), entriesFrom(port), {
      ...owners,
      umask,
      keepExisting,
      missingFile: hasMissingFile ? missingFile : undefined,
      onFailure: failFast ? undefined : (name, why) => report({ kind: "failure", name, error: plainError(why) }),
    });
  } catch (thrown) {
    error = plainError(thrown);
  }
  report({ kind: "unpacked", ...done, error, keepExisting });
}

/** Yields the entries that another thread sends to a message port. */
async function* entriesFrom(source: MessagePort | null): AsyncGenerator<TarEntry> {
  // Acknowledges a batch and returns the batch's memory to the sender. The receiver calls this function when it begins
  // the next batch, because from then on it does not read the old batch.
  const acknowledge = ({ sizeBytes: bytes, bytes: memory }: Batch): void =>
    source?.postMessage({ kind: "acknowledged", bytes, memory } satisfies EntryMessage, [memory]);
  const receiver = new EntryReceiver(acknowledge);
  source?.on("message", (message: EntryMessage) => {
    if (message.kind === "batch") receiver.accept(message.batch);
    if (message.kind === "end") receiver.end(message.error && { error: errorOf(message.error) });
  });
  for (;;) {
    const next = await receiver.next();
    if (next.done === true) return;
    if ("entry" in next.value) yield next.value.entry;
  }
}

let lastPort: MessagePort | undefined;

async function missingFile(link: TarEntry): Promise<TarEntry | undefined> {
  const { port1, port2 } = new MessageChannel();
  // Close the port over which the previous missing file arrived. That file is complete, because entries are unpacked
  // one after the other.
  lastPort?.close();
  lastPort = port1;
  const writer = new BatchWriter();
  writer.reserve("whole", link, 0);
  const batch = writer.take();
  report({ kind: "missing", link: batch, port: port2 }, [batch.bytes, port2]);
  const next = await entriesFrom(port1).next();
  return next.done === true ? undefined : next.value;
}

const job = workerData as Job;
if (job.kind === "read") await read(job);
else if (job.kind === "measure") measure(job);
else await unpack(job);
// This thread does not end by itself, because in Deno a thread cannot close `parentPort`. The thread's owner terminates
// it.
