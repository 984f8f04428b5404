/**
 * All uses of private parts of Node, V8 and OpenSSL; no other module may use any (test/house/internals.test.ts). Each
 * file documents what it gains, and what happens on a Node that lacks it. The C files here are compiled into the
 * addon.
 */
export { garbageCollector } from "./garbage.ts";
export { writeEach, writeJoined } from "./joined-writes.ts";
export { descriptorOf, socketBelow, socketOver, stopReading } from "./handles.ts";
export { receiveAll } from "./shared-reads.ts";
