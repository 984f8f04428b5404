import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import type { Rules } from "./double/rules.ts";
import { createApiServer, type Handler } from "./double/server.ts";

const RULES: Rules = { forks: "contract", patience: 1000, memoryBytes: undefined, scopes: undefined };
const POST = "POST /slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 2\r\n\r\n{}";
const NEXT = "GET /health HTTP/1.1\r\nHost: x\r\n";
const PADDED = `${NEXT}X-Padding: ${"-".repeat(4096)}\r\n\r\n`;

/**
 * What Go 1.26's net/http does, run beside it: net/http/server.go:687 (startBackgroundRead reads the connection, not
 * what bufio has read ahead, line 865), 701-729 (a byte ends that), 773 (an end cancels). The daemon has no server of
 * its own (hypeman 8853445, cmd/api/main.go:571), and its 60 s limit is below that context (line 523).
 */
describe("the development substrate cancels the call of a client that goes away,", () => {
  for (const [what, bytes, isCancelled] of [
    ["that has sent nothing behind it", POST, true],
    ["also one whose next request was read ahead with it", `${POST}${NEXT}\r\n`, true],
    ["but not one with more behind it than can be read ahead", `${POST}${PADDED}`, false],
    ["and not the second of such requests either", `${PADDED}${POST}${PADDED}`, false],
  ] as const)
    for (const leave of ["end", "resetAndDestroy"] as const)
      test(`${what} (${leave})`, async () => {
        const begun = Promise.withResolvers<AbortSignal>();
        const slow: Handler = async (call) => {
          const { signal } = call;
          await call.body();
          begun.resolve(signal);
          await once(signal, "abort").catch(() => undefined);
          return [204] as const;
        };
        const routes = { "GET /health": () => [200, {}] as const, "POST /slow": slow };
        const server = createApiServer(routes, "t", RULES, () => undefined).listen(0, "127.0.0.1");
        await once(server, "listening");
        const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
        client.on("error", () => undefined).resume();
        const [connection] = (await once(server, "connection")) as [Socket];
        const gone = new Promise((resolve) => connection.once("end", resolve).once("close", resolve));
        client.write(bytes);
        const signal = await begun.promise;
        client[leave]();
        await gone;
        await new Promise(setImmediate);
        assert.equal(signal.aborted, isCancelled);
        client.destroy();
        server.close().closeAllConnections();
      });
});
