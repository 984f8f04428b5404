import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import http2 from "node:http2";
import net from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { execa } from "execa";
import {
  FileChunkSchema,
  ReadFileRequestSchema,
  WriteFileRequestSchema,
  WriteFileResponseSchema,
} from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { envelope } from "../../fixtures/raw-http2.ts";
import { type SocketAgent, startSocketAgent } from "../../fixtures/socket-agent.ts";

/*
 * gRPC framed by hand for two common clients of nghttp2: Node's own and curl. They show each field and byte of an
 * answer, which gRPC's clients do not.
 */

const SERVICE = "/svc.guest.v1alpha1.GuestAgent";
const PIECE_BYTES = 1024 * 1024;
const PIECES = 8;

interface Question {
  readonly path: string;
  readonly method?: "POST" | "PUT";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
}

interface Answer {
  readonly status: number;
  /** Headers and trailers. */
  readonly fields: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

interface Client {
  readonly who: string;
  readonly ask: (agent: SocketAgent, question: Required<Question>) => Promise<Answer>;
}

const CLIENTS: readonly Client[] = [
  {
    who: "curl over TLS",
    ask: (agent, question) => {
      const file = (name: string): string => join(agent.credentialsDir, name);
      const identity = ["--cacert", file("ca.pem"), "--cert", file("client.pem"), "--key", file("client.key")];
      const place = ["--http2", "--connect-to", `${SERVER_NAME}:${agent.port}:127.0.0.1:${agent.port}`];
      return askByCurl(agent, [...identity, ...place], `https://${SERVER_NAME}:${agent.port}`, question);
    },
  },
  {
    who: "curl over the unix socket",
    ask: (agent, question) => {
      const place = ["--http2-prior-knowledge", "--unix-socket", agent.socketPath];
      return askByCurl(agent, place, "http://localhost", question);
    },
  },
];

for (const { who, ask: askAgent } of CLIENTS) {
  describe(who, () => {
    let agent: SocketAgent;
    before(async () => {
      agent = await startSocketAgent();
    });
    after(() => agent[Symbol.asyncDispose]());

    const ask = ({ path, method = "POST", headers = {}, body = envelope() }: Question): Promise<Answer> => {
      const named = { "content-type": "application/grpc", te: "trailers", "svc-instance-token": agent.token };
      return askAgent(agent, { path, method, headers: { ...named, ...headers }, body });
    };

    test("gets headers, one message and trailers from Health", async () => {
      const { status, fields, body } = await ask({ path: `${SERVICE}/Health` });
      assert.equal(status, 200);
      assert.equal(fields.get("content-type"), "application/grpc+proto");
      assert.ok(fields.has("svc-agent-version"));
      assert.equal(fields.get("grpc-status"), "0");
      const [message, ...more] = messagesOf(body);
      assert.ok(message !== undefined && more.length === 0);
      assert.equal(fromBinary(HealthResponseSchema, message).alive, true);
    });

    test("sends and gets back 8 MiB in messages of 1 MiB", async () => {
      const path = join(agent.credentialsDir, "content");
      const pieces = Array.from({ length: PIECES }, () => randomBytes(PIECE_BYTES));
      const parts: readonly MessageInitShape<typeof WriteFileRequestSchema>[] = [
        { message: { case: "header", value: { path } } },
        ...pieces.map((value) => ({ message: { case: "data", value } }) as const),
      ];
      const body = Buffer.concat(
        parts.map((part) => envelope(toBinary(WriteFileRequestSchema, create(WriteFileRequestSchema, part)))),
      );
      const written = await ask({ path: `${SERVICE}/WriteFile`, body });
      assert.equal(written.fields.get("grpc-status"), "0", written.fields.get("grpc-message") ?? "");
      const [response = Buffer.alloc(0)] = messagesOf(written.body);
      assert.equal(fromBinary(WriteFileResponseSchema, response).bytesWritten, BigInt(PIECES * PIECE_BYTES));
      const request = toBinary(ReadFileRequestSchema, create(ReadFileRequestSchema, { path }));
      const read = await ask({ path: `${SERVICE}/ReadFile`, body: envelope(request) });
      assert.equal(read.fields.get("grpc-status"), "0");
      const data = messagesOf(read.body).map((message) => fromBinary(FileChunkSchema, message).data);
      assert.ok(Buffer.concat(data).equals(Buffer.concat(pieces)));
    });
  });
}

describe("a client that shrinks its header table and widens it again before the next answer", () => {
  test("understands that answer and all that follow", async () => {
    await using agent = await startSocketAgent();
    const named = { "content-type": "application/grpc", te: "trailers", "svc-instance-token": agent.token };
    const question = { path: `${SERVICE}/Health`, method: "POST", headers: named, body: envelope() } as const;
    const session = dialSocket(agent);
    await askOver(session, question);
    const acknowledged = [0, 4_096].map((headerTableSize) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      session.settings({ headerTableSize }, (error) => (error === null ? resolve() : reject(error)));
      return promise;
    });
    await Promise.all(acknowledged);
    for (let count = 0; count < 3; count++) {
      assert.equal((await askOver(session, question)).fields.get("grpc-status"), "0");
    }
    session.close();
  });
});

function dialSocket({ socketPath }: SocketAgent): http2.ClientHttp2Session {
  return http2.connect("http://localhost", { createConnection: () => net.connect(socketPath) });
}

async function askOver(session: http2.ClientHttp2Session, question: Required<Question>): Promise<Answer> {
  const { path, method, headers, body } = question;
  const stream = session.request({ ":method": method, ":path": path, ...headers });
  stream.end(body);
  const fields = new Map<string, string>();
  const add = (received: http2.IncomingHttpHeaders): void => {
    for (const [name, value] of Object.entries(received)) fields.set(name, String(value));
  };
  stream.on("response", add).on("trailers", add);
  const chunks = (await stream.toArray()) as Buffer[];
  return { status: Number(fields.get(":status")), fields, body: Buffer.concat(chunks) };
}

async function askByCurl(agent: SocketAgent, place: string[], origin: string, question: Required<Question>) {
  const { path, method, headers, body } = question;
  const file = (name: string): string => join(agent.credentialsDir, `curl-${name}`);
  await writeFile(file("request"), body);
  const fieldArgs = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const files = ["--data-binary", `@${file("request")}`, "-D", file("fields"), "-o", file("body")];
  await writeFile(file("body"), "");
  await execa("curl", ["-sS", "-X", method, ...place, ...fieldArgs, ...files, `${origin}${path}`]);
  const head = await readFile(file("fields"), "latin1");
  const fields = new Map(
    Array.from(head.matchAll(/^([^:\s]+): (.*?)\r?$/gm), ([, name = "", value = ""]) => [name, value]),
  );
  const [, status] = /^HTTP\/2 (\d+)/.exec(head) ?? [];
  return { status: Number(status), fields, body: await readFile(file("body")) };
}

/** The messages of a body that holds nothing else. */
function messagesOf(body: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; at < body.length;) {
    const end = at + 5 + body.readUInt32BE(at + 1);
    assert.ok(body[at] === 0 && end <= body.length, "a whole, uncompressed message");
    messages.push(body.subarray(at + 5, end));
    at = end;
  }
  return messages;
}
