import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_CREDIT, NEEDS_STRACE } from "../../fixtures/privileges.ts";
import { testDirectory } from "../../fixtures/files.ts";

// Setting the clock only pretends to succeed.
const TRACE = ["-e", "trace=ioctl,clock_settime,fadvise64", "-e", "inject=clock_settime:retval=0"];

it(
  "restore steps make exactly the expected system calls",
  NEEDS_CREDIT.skip === false ? NEEDS_STRACE : NEEDS_CREDIT,
  async () => {
    await using directory = await testDirectory();
    const output = directory.at("trace");
    await using agent = await startAgent({ through: ["strace", "-D", "-f", "-y", "-o", output, ...TRACE] });
    using client = clientOf(agent);
    const hostTimeMs = Date.now();
    const entropy = new Uint8Array(1_200).fill(7);
    const report = await client.snapshots.duties({ entropy, hostTime: new Date(hostTimeMs) });
    await agent.stop();
    const calls = readFileSync(output, "utf8").split("\n");
    assert.deepEqual(
      [report.entropyBytesMixed, report.entropyCredited, report.clockStepped, report.degraded],
      [1_200, true, true, ""],
    );
    const pool = calls.filter((line) => /RNDADDENTROPY|RNDRESEEDCRNG/.test(line));
    assert.equal(pool.length, 4, pool.join("\n"));
    for (const [index, sizeBytes] of [512, 512, 176].entries()) {
      const bits = sizeBytes * 8;
      assert.match(
        pool[index] ?? "",
        new RegExp(`RNDADDENTROPY, \\{entropy_count=${bits}, buf_size=${sizeBytes}[,}].* = 0`),
      );
    }
    assert.match(pool[3] ?? "", /RNDRESEEDCRNG.* = 0/);

    const [set, ...more] = calls.filter((line) => line.includes("clock_settime("));
    assert.deepEqual(more, []);
    const [, seconds, nanos] = /CLOCK_REALTIME, \{tv_sec=(\d+)(?: \/\*.*?\*\/)?, tv_nsec=(\d+)\}/.exec(set ?? "") ?? [];
    const setMs = Number(seconds) * 1_000 + Number(nanos) / 1e6;
    // The agent adds the time between arrival and step, but not the time on the way.
    assert.ok(setMs >= hostTimeMs && setMs <= Date.now(), `${setMs} for ${hostTimeMs}`);

    for (const name of ["server.pem", "server.key", "ca.pem"]) {
      const file = join(agent.credentialsDir, name);
      const dropped = calls.some((line) => line.includes(`<${file}>`) && line.includes("POSIX_FADV_DONTNEED"));
      assert.ok(dropped, `${file} is read past the page cache`);
    }
  },
);
