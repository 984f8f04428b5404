/**
 * The server under test of connectconformance: the agent's own listeners, TLS, HTTP/2 and gRPC, with the suite's
 * service in place of GuestAgent. Reads its configuration from standard input, and prints where it listens on standard
 * output.
 */
import { once } from "node:events";
import { mkdtempDisposableSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ManagementServer } from "../../../../src/agent/server/index.ts";
import { relayTo } from "../../../fixtures/relay.ts";
import { recordingLog } from "../../../fixtures/recorders.ts";
import { systemClock } from "../../../fixtures/clocks.ts";
import { AnsweringRouter } from "./answer.ts";
import {
  type ServerCompatRequest,
  ServerCompatRequestSchema,
  ServerCompatResponseSchema,
} from "./gen/connectrpc/conformance/v1/server_compat_pb.ts";
import { serve } from "./service.ts";

/** Listens as the suite requires; without TLS on the unix socket, and on a port before it: the suite dials ports. */
async function listen(server: ManagementServer, request: ServerCompatRequest, directory: string): Promise<number> {
  const { useTls, serverCreds, clientTlsCert } = request;
  if (!useTls) {
    const path = join(directory, "guest.sock");
    await server.listenUnix(path);
    return (await relayTo({ path })).port;
  }
  if (serverCreds === undefined) throw new Error("the suite gives no certificate for the server");
  const { cert, key } = serverCreds;
  return server.listenTcp(0, { cert: Buffer.from(cert), key: Buffer.from(key), clientCa: Buffer.from(clientTlsCert) });
}

/** The suite's messages begin with their length in four bytes. */
async function configuration(): Promise<Buffer> {
  let received = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    if (received.length >= 4 && received.length >= 4 + received.readUInt32BE()) return received.subarray(4);
  }
  throw new Error("standard input has no configuration");
}

const request = fromBinary(ServerCompatRequestSchema, await configuration());
const log = recordingLog();
const router = new AnsweringRouter({
  clock: systemClock,
  log,
  agentVersion: "conformance",
  ...(request.messageReceiveLimit > 0 && { messageLimitBytes: request.messageReceiveLimit }),
});
serve(router);
const server = new ManagementServer({
  router,
  authenticate: () => undefined,
  log,
  clock: systemClock,
  // Clients of the suite that are made of grpc-go keep a connection for each case until they end.
  limits: { connections: 1_000 },
});
const directory = mkdtempDisposableSync(join(tmpdir(), "conformance-"));
process.on("exit", () => directory.remove());
const port = await listen(server, request, directory.path);
const pemCert = request.serverCreds?.cert ?? new Uint8Array();
const response = create(ServerCompatResponseSchema, { host: "127.0.0.1", port, pemCert });
const message = toBinary(ServerCompatResponseSchema, response);
const length = Buffer.alloc(4);
length.writeUInt32BE(message.length);
process.stdout.write(Buffer.concat([length, message]));
await once(process, "SIGTERM");
// An error that the agent logs in a call is a bug of its own, which no status shows.
for (const { fields } of log.lines.filter(({ event }) => event === "call_failed")) console.error(fields);
process.exit(0);
