import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import type { ListeningPort } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";

const NEEDS_SS = { skip: spawnSync("ss", ["-V"]).error === undefined ? false : "needs ss (iproute2)" } as const;
const BINDS = 1_000;
const AT_ONCE = 50;
const OPEN_MS = 2_000;
/** `LISTEN 0 511 127.0.0.1:80 0.0.0.0:* users:(("node",pid=1,fd=20)) ino:123 sk:1` */
const SS_LINE = /^LISTEN +\d+ +\d+ +(?:\[?([^\]\s]*?)\]?):(\d+) .*users:\(\("([^"]*)",pid=(\d+),.* ino:(\d+) /;

interface Place {
  readonly address: string;
  readonly port: number;
  readonly pid: number | undefined;
  readonly command: string;
}

const agent = forAllTests(await startAgent());
const run = promisify(execFile);
const hasV6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === "::1"));

describe("listening ports, compared with ss -ltnp", NEEDS_SS, () => {
  it(`watchPorts reports ${BINDS} random binds and closes exactly`, async (t) => {
    using client = clientOf(agent);
    const random = seededRandom(52);
    const hosts = [
      "127.0.0.1",
      "127.0.0.2",
      "0.0.0.0",
      hasV6 ? "::1" : "127.0.0.3",
      hasV6 ? "::" : "127.0.0.4",
    ] as const;
    const bound = new Map<number, { readonly port: number; readonly address: string; readonly atMs: number }>();
    const told = new Map<number, ListeningPort>();
    const closed = new Set<number>();
    const delaysMs: number[] = [];
    const watch = client.ports.watch();
    const reading = (async () => {
      for await (const changes of watch) {
        for (const port of changes.ports) {
          if (port.pid !== process.pid) continue;
          if (!told.has(port.inode)) delaysMs.push(performance.now() - (bound.get(port.inode)?.atMs ?? NaN));
          told.set(port.inode, port);
        }
        for (const port of changes.closed) closed.add(port.inode);
      }
    })();
    const bySs = new Map<number, Place>();
    const over = new AbortController();
    const judging = (async () => {
      while (!over.signal.aborted) {
        const { stdout } = await run("ss", ["-H", "-ltnpe"], { maxBuffer: 2 ** 24 });
        for (const line of stdout.split("\n")) {
          const [, address = "", port, command = "", pid, inode] = SS_LINE.exec(line) ?? [];
          if (Number(pid) === process.pid)
            bySs.set(Number(inode), { address, port: Number(port), pid: Number(pid), command });
        }
        await pause(200);
      }
    })();
    let left = BINDS;
    const binder = async (): Promise<void> => {
      while (left-- > 0) {
        const server = createServer().listen(0, random.oneOf(hosts));
        await once(server, "listening");
        const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
        const inode = Number(/\d+/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[0]);
        const { address, port } = server.address() as AddressInfo;
        bound.set(inode, { address, port, atMs: performance.now() });
        await pause(OPEN_MS + random.below(OPEN_MS));
        await new Promise((resolve) => server.close(resolve));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, binder));
    while ([...bound.keys()].some((inode) => told.has(inode) && !closed.has(inode))) await pause(100);
    over.abort();
    await judging;
    await watch.return?.();
    await reading.catch(() => undefined);
    const sorted = delaysMs.toSorted((one, other) => one - other).map(Math.round);
    t.diagnostic(`told ${sorted[BINDS / 2]} ms after the bind, ${sorted.at(-1)} at most; ss saw ${bySs.size}`);
    assert.equal(bound.size, BINDS);
    assert.deepEqual(new Set(told.keys()), new Set(bound.keys()));
    for (const [inode, { address, port }] of bound) {
      const one = told.get(inode);
      assert.deepEqual([one?.address, one?.port], [address, port]);
    }
    for (const [inode, place] of bySs) {
      const { address, port, pid, command } = told.get(inode) ?? assert.fail(`only ss has ${JSON.stringify(place)}`);
      // A socket of both families is "*" to ss.
      const itsAddress = place.address === "*" ? "::" : place.address;
      assert.deepEqual({ address, port, pid, command }, { ...place, address: itsAddress });
    }
    assert.ok(bySs.size > BINDS / 2);
  });
});
