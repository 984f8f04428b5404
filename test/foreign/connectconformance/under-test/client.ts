/**
 * The client under test of connectconformance: calls of the suite's service through the client library's own channel,
 * with its connections, TLS and options. Reads the calls from standard input and writes the results to standard
 * output.
 */
import { mkdtempDisposableSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { ConnectOptions } from "../../../../src/node/client/index.ts";
import { openChannel } from "../../../../src/node/client/link/open.ts";
import { messageOf } from "../../../../src/shared/errors.ts";
import { type ByteRelay, relayTo } from "../../../fixtures/byte-relay.ts";
import { issueCertificates } from "../../../fixtures/certificates.ts";
import { Call } from "./call.ts";
import {
  type ClientCompatRequest,
  ClientCompatRequestSchema,
  type ClientCompatResponse,
  ClientCompatResponseSchema,
  ClientErrorResultSchema,
} from "./gen/connectrpc/conformance/v1/client_compat_pb.ts";
import { Seen } from "./seen.ts";
import { readMessages, writeMessage } from "./stdio.ts";

const TOKEN = "conformance";
/** In the suite's certificates. */
const SERVER_NAME = "localhost";

using folder = mkdtempDisposableSync(join(tmpdir(), "conformance-"));
const relays = new Map<string, Promise<ByteRelay>>();
/** For servers that ask for no certificate: the library always has one. */
const any = await issueCertificates();

/** Makes a unix socket before a port of the suite's: the library dials ports over TLS only. */
async function socketBefore(host: string, port: number): Promise<string> {
  const path = join(folder.path, `${host}-${port}`);
  await relays.getOrInsertComputed(path, () => relayTo({ host, port }, { path }));
  return path;
}

/** The server's address for the library, which dials unix sockets only without TLS. */
async function addressOf(request: ClientCompatRequest): Promise<ConnectOptions> {
  const { host, port, serverTlsCert, clientTlsCreds } = request;
  if (serverTlsCert.length === 0) return { address: `unix:${await socketBefore(host, port)}`, token: TOKEN };
  const { cert: certPem, key: keyPem } = clientTlsCreds ?? any.client;
  const address = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  return { address, token: TOKEN, caPem: serverTlsCert, certPem, keyPem, serverName: SERVER_NAME };
}

/** Makes a call over a connection of its own. */
async function resultOf(request: ClientCompatRequest): Promise<ClientCompatResponse["result"]> {
  const { messageReceiveLimit, requestHeaders } = request;
  const seen = new Seen();
  const channel = openChannel(await addressOf(request), {
    interceptors: [seen.interceptor(requestHeaders)],
    ...(messageReceiveLimit > 0 && { "grpc.max_receive_message_length": messageReceiveLimit }),
  });
  try {
    return { case: "response", value: await new Call(channel, request).result(seen) };
  } catch (error) {
    return { case: "error", value: create(ClientErrorResultSchema, { message: messageOf(error) }) };
  } finally {
    channel.close();
  }
}

for await (const message of readMessages()) {
  const request = fromBinary(ClientCompatRequestSchema, message);
  const response = create(ClientCompatResponseSchema, { testName: request.testName, result: await resultOf(request) });
  writeMessage(toBinary(ClientCompatResponseSchema, response));
}
for (const relay of relays.values()) await (await relay)[Symbol.asyncDispose]();
