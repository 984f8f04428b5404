import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type ConnectOptions, GuestError } from "../../src/node/client/index.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import type { Endpoint, Guest, GuestMaker, Running } from "./guest.ts";

/** The client library of this project. */
export const LIBRARY_MAKER: GuestMaker = {
  make: "GuestClient",
  provide: () => Promise.resolve((endpoint, token) => guestOf(connect(connectOptions(endpoint, token)))),
};

function guestOf(client: ReturnType<typeof connect>): Guest {
  return {
    health: () => client.health(),
    exec: (command, { signal, timeoutMs: deadlineMs } = {}) => running(client.exec(command, { signal, deadlineMs })),
    readFile: (path) => client.readFile(path),
    writeFile: ({ path, ...header }, content) => client.writeFile(path, content, header),
    statPath: (path) => client.statPath(path),
    makeFolder: (path) => client.mkdir(path),
    rename: (path, newPath) => client.rename(path, newPath),
    list: (path) => client.list(path),
    remove: (path) => client.remove(path, { recursive: true }),
    connect: (path) => {
      const tunnel = client.connect(path);
      return { output: tunnel, write: (bytes) => void tunnel.write(bytes), end: () => void tunnel.end() };
    },
    runHook: (kind) => client.runHook({ kind }),
    runRestoreDuties: (entropy) => client.runRestoreDuties({ entropy }),
    failure: (error) => {
      assert.ok(error instanceof GuestError, String(error));
      return { status: error.status, reason: error.reason, metadata: error.metadata };
    },
    close: () => client.close(),
  };
}

function connectOptions({ dial, bridge }: Endpoint, token: string): ConnectOptions {
  if (bridge !== undefined) return { bridge, token };
  if ("socketPath" in dial) return { address: `unix:/${dial.socketPath.slice(1)}` as const, token };
  const { ca, client } = dial.certificates;
  const credentials = { caPem: ca, certPem: client.cert, keyPem: client.key };
  return { address: `127.0.0.1:${dial.port}`, ...credentials, token, serverName: SERVER_NAME };
}

type ExecProcess = ReturnType<ReturnType<typeof connect>["exec"]>;

function running(child: ExecProcess): Running {
  return {
    started: child.started,
    stdout: child.stdout,
    stderr: child.stderr,
    write: async (bytes) => {
      if (!child.stdin.write(bytes)) await once(child.stdin, "drain");
    },
    end: () => void child.stdin.end(),
    resize: (cols, rows) => child.resize(cols, rows),
    signal: (number) => child.signal(number),
    wait: () => child.wait(),
  };
}
