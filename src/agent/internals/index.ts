/**
 * Private parts of Node, V8 and OpenSSL, and nothing else: no other room touches any (test/house/internals.test.ts).
 * Each file says what its part gains, and what happens on a Node that lacks it. The C files here are part of the
 * addon.
 */
export { garbageCollector } from "./garbage.ts";
export { writeEach, writeJoined } from "./joined-writes.ts";
export { descriptorOf, socketBelow, socketOver, stopReading } from "./handles.ts";
export { receiveAll } from "./shared-reads.ts";
