/**
 * The server under test of connectconformance: the agent's own listeners, TLS, HTTP/2 and gRPC, with the suite's
 * service in place of GuestAgent. Reads its configuration from standard input, and prints where it listens on
 * standard output. The argument is the file of the suite's descriptors.
 */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ManagementServer } from "../../../src/agent/server/index.ts";
import { relayTo } from "../../../test/fixtures/byte-relay.ts";
import { recordingLog } from "../../../test/fixtures/recording-log.ts";
import { systemClock } from "../../../test/fixtures/system-clock.ts";
import { AnsweringRouter } from "./answer.ts";
import { readSchema, type ServerRequest } from "./schema.ts";
import { Service } from "./service.ts";

const LENGTH_BYTES = 4;

/** One message of the suite's, after its length. */
async function readMessage(): Promise<Buffer> {
  let received = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    if (received.length < LENGTH_BYTES) continue;
    const length = received.readUInt32BE();
    if (received.length >= LENGTH_BYTES + length) return received.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
  }
  throw new Error("standard input ended within the configuration");
}

/** Listens as the suite wants; without TLS on the unix socket, and on a port before it, because the suite dials ports. */
async function listen(server: ManagementServer, request: ServerRequest, folder: string): Promise<number> {
  const { useTls, serverCreds, clientTlsCert } = request;
  if (!useTls) {
    const path = join(folder, "guest.sock");
    await server.listenUnix(path);
    return (await relayTo(path)).port;
  }
  if (serverCreds === undefined) throw new Error("the suite gives no certificate for the server");
  const { cert, key } = serverCreds;
  return server.listenTcp(0, { cert: Buffer.from(cert), key: Buffer.from(key), clientCa: Buffer.from(clientTlsCert) });
}

const [, , descriptors = ""] = process.argv;
const schema = readSchema(descriptors);
const request = fromBinary(schema.serverRequest, await readMessage());
const log = recordingLog();
const router = new AnsweringRouter({
  clock: systemClock,
  log,
  agentVersion: "conformance",
  ...(request.messageReceiveLimit > 0 && { messageLimitBytes: request.messageReceiveLimit }),
});
void new Service(router, schema);
const server = new ManagementServer({
  router,
  authenticate: () => undefined,
  log,
  clock: systemClock,
  // Clients of the suite that are made of grpc-go keep a connection for each case until they end.
  limits: { connections: 1_000 },
});
const folder = mkdtempSync(join(tmpdir(), "conformance-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const port = await listen(server, request, folder);
const response = create(schema.serverResponse);
response.host = "127.0.0.1";
response.port = port;
response.pemCert = request.serverCreds?.cert ?? new Uint8Array();
const bytes = toBinary(schema.serverResponse, response);
const length = Buffer.alloc(LENGTH_BYTES);
length.writeUInt32BE(bytes.length);
process.stdout.write(Buffer.concat([length, bytes]));
await once(process, "SIGTERM");
// An error that the agent logs in a call is a bug of its own, which no status shows.
for (const { fields } of log.lines.filter(({ event }) => event === "call_failed")) console.error(fields);
process.exit(0);
