/**
 * All uses of private parts of Node, V8 and OpenSSL. No other module may use such parts (test/house/internals.test.ts).
 * Each file documents why it uses a private part, and what happens on a Node without this part. The C files here are
 * compiled into the addon.
 */
export { garbageCollector } from "./garbage.ts";
export { writeEach, writeJoined } from "./joined-writes.ts";
export { descriptorOf, socketBelow, listeningHandle, stopReading } from "./handles.ts";
export { receiveAll } from "./shared-reads.ts";
