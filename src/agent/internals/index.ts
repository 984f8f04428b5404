/**
 * All uses of private parts of Node, V8 and OpenSSL (checked by test/house/internals.test.ts). Each file documents why
 * it uses a private part, and what happens if Node lacks it. The C files are compiled into the addon.
 */
export { garbageCollector } from "./garbage.ts";
export { writeEach, writeJoined } from "./joined-writes.ts";
export { descriptorOf, socketBelow, listeningHandle, stopReading } from "./handles.ts";
export { receiveAll } from "./shared-reads.ts";
