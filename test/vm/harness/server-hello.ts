import { once } from "node:events";
import { connect as dial } from "node:net";
import { Duplex } from "node:stream";
import { connect as connectTls } from "node:tls";

/** The random parts of a server's TLS handshake (RFC 8446, section 4.1.3). */
export interface ServerHello {
  /** In hex. */
  readonly random: string;
  /** The public value of its X25519 key, in hex. */
  readonly keyShare: string;
}

const RECORD_HEADER_BYTES = 5;
const RANDOM_START = RECORD_HEADER_BYTES + 4 + 2;
const RANDOM_BYTES = 32;
const KEY_SHARE = 51;
const KEY_BYTES = 32;

/** Begins a handshake, without a certificate, and breaks it off after the server's first message. */
export async function serverHello(port: number): Promise<ServerHello> {
  const raw = dial(port, "127.0.0.1");
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let received = Buffer.alloc(0);
  const transport = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => void raw.write(bytes, done),
  });
  raw.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes]);
    if (received.length < RECORD_HEADER_BYTES) return;
    const length = RECORD_HEADER_BYTES + received.readUInt16BE(3);
    if (received.length >= length) resolve(received.subarray(0, length));
  });
  raw.on("error", reject).on("close", () => reject(new Error("the server closed the connection before its hello")));
  await once(raw, "connect");
  const secure = connectTls({
    socket: transport,
    rejectUnauthorized: false,
    ecdhCurve: "X25519",
    minVersion: "TLSv1.3",
    ALPNProtocols: ["h2"],
  });
  secure.on("error", () => undefined);
  try {
    return parse(await promise);
  } finally {
    secure.destroy();
    raw.destroy();
  }
}

function parse(record: Buffer): ServerHello {
  const random = record.subarray(RANDOM_START, RANDOM_START + RANDOM_BYTES).toString("hex");
  let at = RANDOM_START + RANDOM_BYTES;
  at += 1 + record.readUInt8(at); // session id
  at += 2 + 1 + 2; // cipher suite, compression, length of the extensions
  while (at + 4 <= record.length) {
    const length = record.readUInt16BE(at + 2);
    const end = at + 4 + length;
    if (record.readUInt16BE(at) === KEY_SHARE)
      return { random, keyShare: record.toString("hex", end - KEY_BYTES, end) };
    at = end;
  }
  throw new Error("the server's hello has no key share");
}
