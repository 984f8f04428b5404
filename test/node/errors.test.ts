import assert from "node:assert/strict";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { TcpOptions } from "../../src/node/client/index.ts";
import { freePort } from "../../scripts/machine/free-port.ts";
import { startAgent } from "../fixtures/agent.ts";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../fixtures/guest-client.ts";
import { listener } from "../fixtures/listeners.ts";
import { relayTo } from "../fixtures/relay.ts";
import { runGuestctl } from "./guestctl/guestctl.ts";

/** What a person reads: the message, and the next step. */
type Told = readonly [message: string, nextStep: string];

/** Who reports a fault, and when. Each fault is provoked in the real client of a real peer. Default: no next step. */
type Row = readonly [who: string, told: () => Promise<Told>, message: RegExp, nextStep?: RegExp];

const EXPIRED =
  /^the agent refused your client certificate: by the guest's clock, your certificate or its authority's certificate has expired \(TLS alert certificate expired\)$/;

const agent = forAllTests(await startAgent());
const directory = forAllTests(await testDirectory()).path;
const relay = forAllTests(await relayTo(agent.port));
const silent = forAllTests(await listener());
const web = forAllTests(await listener((socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")));

/** What the library reports for a call. Default: Health. */
async function library(
  options: Partial<TcpOptions>,
  call: (client: ReturnType<typeof clientOf>) => Promise<unknown> = (client) =>
    client.health({ requestTimeoutMs: 30_000 }),
): Promise<Told> {
  using client = clientOf(agent, options);
  const error = await failureOf(call(client));
  return [error.message, error.nextStep ?? ""];
}

/** What guestctl reports, with the agent's credentials. */
async function guestctl(args: readonly string[], address = `127.0.0.1:${agent.port}`): Promise<Told> {
  const credentials = await mkdtemp(join(directory, "credentials-"));
  const { ca, client } = agent.certificates;
  const files = { "ca.pem": ca, "client.pem": client.cert, "client.key": client.key, token: agent.token };
  for (const [name, text] of Object.entries(files)) await writeFile(join(credentials, name), text);
  const env = {
    PATH: process.env["PATH"] ?? "",
    GUESTCTL_ADDRESS: address,
    GUESTCTL_CREDENTIALS: credentials,
    GUESTCTL_SERVER_NAME: SERVER_NAME,
  };
  const { stderr, exitCode } = await runGuestctl(args.includes("--json") ? args : [...args, "--json"], env);
  assert.equal(exitCode, 125);
  const { error } = JSON.parse(stderr) as { error: { message: string; next_step?: string } };
  return [error.message, error.next_step ?? ""];
}

/** A client's certificate: one of the agent's authority that has expired, or one of another authority. */
async function withCertificate(kind: "expired" | "foreign"): Promise<Partial<TcpOptions>> {
  const day = 86_400_000;
  const past = { notBefore: new Date(Date.now() - 2 * day), notAfter: new Date(Date.now() - day) };
  const { cert, key } =
    kind === "expired" ? await agent.certificates.issueClient(past) : (await issueCertificates()).client;
  return { certPem: cert, keyPem: key };
}

/** A kept command that has ended and is not forgotten. */
async function ended(name: string): Promise<void> {
  using client = clientOf(agent);
  await client.start(["true"], { keep: { name }, forget: false }).wait();
}

const RENEW = /^renew the client certificate, or check the guest's clock$/;
const ISSUED = /^use the client certificate that was issued for this agent$/;
const CHECK = /^check that the agent runs and that the address is right$/;
const NO_AGENT = /^check the address: the program that listens there is not a guest agent, or only one side uses TLS$/;
const SILENT = /^the agent may be suspended or busy: try again; if it stays silent, check that an agent listens there$/;

const ROWS: readonly Row[] = [
  // What is wrong with a request: the agent's message, with each client's names.
  [
    "library: a kept command of that name has ended",
    async () => {
      await ended("buffer_bytes");
      return library({}, (client) => client.start(["true"], { keep: { name: "buffer_bytes" } }).wait());
    },
    /^command "buffer_bytes" already exists \(ended\); remove it, or set keep\.replaceEnded to replace it$/,
  ],
  [
    "guestctl: a kept command of that name has ended",
    async () => {
      await ended("cwd");
      return guestctl(["exec", "--name", "cwd", "--json", "--", "true"]);
    },
    /^command "cwd" already exists \(ended\); remove it, or set --replace to replace it$/,
    /^"guestctl attach" attaches to the command with this name, "guestctl end" ends it and frees its name$/,
  ],
  [
    "library: a file's directory is missing",
    () => library({}, (client) => client.files.writeFile("/no/create_parents/x", "text")),
    /^cannot write "\/no\/create_parents\/x": its directory does not exist \(set parents to create it\)/,
  ],
  [
    "guestctl: a file's directory is missing",
    () => guestctl(["write", "/no/createParents/x"]),
    /^cannot write "\/no\/createParents\/x": its directory does not exist \(set --parents to create it\)/,
  ],
  ["library: a path is relative", () => library({}, (client) => client.files.stat("etc")), /^path must be absolute$/],
  [
    "guestctl: a path is relative",
    () => guestctl(["stat", "etc"]),
    /^etc is relative; a path in the sandbox is absolute, as in \/etc \(see --help\)$/,
  ],
  [
    "library: a path below beneath is missing and named in full",
    () => library({}, (client) => client.files.writeFile("no/such", "text", { beneath: "/etc/" })),
    /^cannot write "\/etc\/no\/such": its directory does not exist/,
  ],
  [
    "library: a command's working directory is relative",
    () => library({}, (client) => client.run(["true"], { cwd: "etc" })),
    /^cwd must be an absolute path$/,
  ],
  [
    "guestctl: a command's working directory is relative",
    () => guestctl(["exec", "-w", "etc", "--json", "--", "true"]),
    /^--workdir must be an absolute path$/,
  ],
  [
    "guestctl: a command's working directory is not a directory",
    () => guestctl(["exec", "-w", "/no", "--json", "--", "true"]),
    /^the working directory does not exist: "\/no"/,
  ],
  // What is wrong with a connection.
  ...["library", "guestctl"].map((who): Row => [
    `${who}: it is cut inside a file of a directory that is copied`,
    async () => {
      const large = await mkdtemp(join(directory, "large-"));
      await writeFile(join(large, "file"), Buffer.alloc(4_000_000, "large"));
      const [to, address] = [join(large, "../copy"), `127.0.0.1:${relay.port}`];
      relay.cutAfter(() => 2_000_000);
      if (who === "guestctl") return guestctl(["cp", `:${large}`, to], address);
      return library({ address }, (client) => client.files.download(large, to));
    },
    /^(?:read ECONNRESET|Connection dropped)/,
    /^the connection was lost: check whether the call has taken effect$/,
  ]),
  [
    "library: the client certificate has expired while reading a file",
    async () => library(await withCertificate("expired"), (client) => client.files.readFile("/etc/hostname")),
    EXPIRED,
    RENEW,
  ],
  [
    "library: the client certificate's chain is too long",
    () => {
      const { cert, key } = agent.certificates.client;
      return library({ certPem: `${cert}\n`.repeat(9), keyPem: key });
    },
    /decode error/,
    /^remove certificates from the client's chain, beginning with the root: the agent accepts at most four, with 5\.5 KiB in all$/,
  ],
  [
    "library: the client certificate has another CA",
    async () => library(await withCertificate("foreign")),
    /^the agent refused your client certificate: \S/,
    ISSUED,
  ],
  ...["restore", "restore-sequence"].flatMap((command): Row[] => [
    [
      `guestctl: ${command} finds no listener, at once`,
      // Only the refusal can end it within the allowed time.
      async () => guestctl([command, "--wait", "1h"], `127.0.0.1:${await freePort()}`),
      /^connect ECONNREFUSED 127\.0\.0\.1:\d+$/,
      CHECK,
    ],
    [
      `guestctl: ${command} finds a port that says nothing`,
      () => guestctl([command, "--wait", "500ms"], `127.0.0.1:${silent.port}`),
      /^no connection before the deadline: 127\.0\.0\.1:\d+ accepts the connection but does not answer$/,
      SILENT,
    ],
    [
      `guestctl: ${command} finds another protocol, at once`,
      () => guestctl([command, "--wait", "1h"], `127.0.0.1:${web.port}`),
      /^the TLS handshake failed: SSL wrong version number$/,
      NO_AGENT,
    ],
  ]),
  [
    "library: a restore fails at once on an agent with another CA",
    async () => {
      const { ca } = await issueCertificates();
      return library({ caPem: ca }, (client) =>
        client.snapshots.completeRestore({ hostTime: false, reachTimeoutMs: 3_600_000 }),
      );
    },
    /certificate/,
    /^set caPem to the certificate of the authority that issued the agent's certificate$/,
  ],
  [
    "library: a call waits for an unreachable agent",
    async () =>
      library({ address: `127.0.0.1:${await freePort()}` }, (client) =>
        client.health({ waitForReady: true, requestTimeoutMs: 300 }),
      ),
    /^no connection before the deadline: connect ECONNREFUSED 127\.0\.0\.1:\d+$/,
    CHECK,
  ],
];

describe("errors say what was wrong and what to do", () => {
  for (const [who, told, message, nextStep = /^$/] of ROWS)
    test(`error text in ${who}`, async () => {
      const said = await told();
      assert.match(said[0], message);
      assert.match(said[1], nextStep);
    });
});
