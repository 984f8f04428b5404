import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";

const SERVICE = "/svc.guest.v1alpha1.GuestAgent";
const CALLS = 100;
const MIB = 1024 * 1024;
/** 100 calls one way with up to 512 KiB queued each, 100 the other with 128 KiB held each and up to 256 KiB of window. */
const BOUND_BYTES = 120 * MIB;

describe("the agent's memory", () => {
  test("stays bounded when clients do not read, and when handlers do not", async (t) => {
    const certificates = await issueCertificates();
    const program = fileURLToPath(new URL("../fixtures/flooded-server.ts", import.meta.url));
    const child = fork(program, { execArgv: ["--max-semi-space-size=1"] });
    t.after(() => child.kill("SIGKILL"));
    const port = await ask(child, { ...certificates.server, clientCa: certificates.ca });
    const session = http2.connect(`https://127.0.0.1:${port}`, {
      ca: certificates.ca,
      ...certificates.client,
      servername: SERVER_NAME,
      maxSessionMemory: 1_000,
    });
    session.on("error", () => {});
    await once(session, "connect");
    const before = await ask(child, "memory");

    const offered = Buffer.alloc(4 * MIB);
    offered.writeUInt32BE(offered.length - 5, 1);
    for (let i = 0; i < CALLS; i++) {
      const reading = open(session, "ReadFile");
      reading.end(Buffer.alloc(5));
      reading.pause();
      const writing = open(session, "Exec");
      writing.write(Buffer.alloc(5));
      writing.write(offered);
    }
    let last = 0;
    let most = 0;
    // The server has taken all that it takes once several rounds of questions add nothing.
    for (let quiet = 0; quiet < 5;) {
      await new Promise<void>((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve())));
      await new Promise((resolve) => setTimeout(resolve, 50));
      const now = await ask(child, "memory");
      most = Math.max(most, now);
      quiet = Math.abs(now - last) < MIB ? quiet + 1 : 0;
      last = now;
    }
    session.destroy();
    t.diagnostic(`${((most - before) / MIB).toFixed(0)} MiB more than at rest`);
    assert.ok(most - before < BOUND_BYTES, `${most - before} bytes more than at rest`);
  });
});

function open(session: http2.ClientHttp2Session, method: string): http2.ClientHttp2Stream {
  const headers = { ":method": "POST", ":path": `${SERVICE}/${method}`, "content-type": "application/grpc" };
  return session.request(headers).on("error", () => {});
}

async function ask(child: ChildProcess, question: string | object): Promise<number> {
  child.send(question);
  const [answer] = (await once(child, "message")) as [number];
  return answer;
}
