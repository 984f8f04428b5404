import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { clientOf } from "../../../test/fixtures/guest-client.ts";
import { type SocketAgent, startSocketAgent } from "../../../test/fixtures/socket-agent.ts";
import { memoryOf } from "../../soak/footprint.ts";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import type { Suite } from "../suite.ts";

const PROGRAM = { name: "h2load", package: "nghttp2-client" };
const CALLS = 100_000;
/** Far more than the agent's 64 connections a listener. */
const CROWD = 1_000;
/** What the second of two equal loads may add to the peak; one call in ten that left 8 KiB behind would add more. */
const GROWTH_LIMIT_BYTES = 64 * 1024 * 1024;
/** An emergency brake: the load takes seconds. */
const RUN_LIMIT_MS = 400_000;
/** A message without fields: no compression, no bytes. */
const EMPTY_MESSAGE = Buffer.alloc(5);

/** What h2load printed. */
interface Load {
  readonly total: number;
  readonly succeeded: number;
  readonly failed: number;
  /** Bytes of answers, without headers: a refusal has none. */
  readonly dataBytes: number;
  readonly printed: string;
}

/**
 * nghttp2's load generator: calls of Health at the unix socket, since it shows no client certificate. Three cases: a
 * load without an error, the same load again in bounded memory, and a crowd of connections that is refused while a
 * client goes on.
 */
export const H2LOAD: Suite = {
  name: "h2load",
  about: `${CALLS} calls of Health over 50 connections, 20 at a time; ${CROWD} connections at once`,
  cases: 3,
  differences: {},
  run: async () => {
    requirePrograms([PROGRAM], "for h2load");
    await using folder = await mkdtempDisposable(join(tmpdir(), "h2load-"));
    const message = join(folder.path, "message");
    await writeFile(message, EMPTY_MESSAGE);
    await using agent = await startSocketAgent();
    const load = (...args: string[]): Promise<Load> => run(agent, message, args);
    const cases = new Cases();
    const many = ["-c", "50", "-m", "20", "-n", String(CALLS)];
    await cases.check("a load without an error", async () => demandWhole(await load(...many)));
    await cases.check("the same load again, in bounded memory", async () => {
      const before = memoryOf(agent.pid).peakBytes;
      demandWhole(await load(...many));
      const grown = memoryOf(agent.pid).peakBytes - before;
      if (grown > GROWTH_LIMIT_BYTES) throw new Error(`its peak grew by ${grown} bytes`);
    });
    await cases.check("a crowd is refused, and a client goes on", () => crowd(agent, load));
    return { version: await packageVersion(PROGRAM.package), cases: cases.count, failures: cases.failures };
  },
};

/** Every call of a load was answered with a message. @throws Error with what h2load printed */
function demandWhole({ total, succeeded, failed, dataBytes, printed }: Load): void {
  const isWhole = total === CALLS && succeeded === CALLS && failed === 0;
  if (!isWhole || dataBytes <= CALLS * EMPTY_MESSAGE.length) throw new Error(printed);
}

/** Has a client call all the time while far more connections come than there are places. */
async function crowd(agent: SocketAgent, load: (...args: string[]) => Promise<Load>): Promise<void> {
  using client = clientOf(agent, { address: `unix:${agent.socketPath}` });
  await client.health();
  const over = new AbortController();
  let calls = 0;
  const calling = (async () => {
    for (; !over.signal.aborted; calls++) await client.health();
  })();
  const { total, succeeded, failed, printed } = await load("-c", String(CROWD), "-n", String(CROWD));
  over.abort();
  await calling;
  if (total !== CROWD || succeeded + failed !== CROWD) throw new Error(printed);
  if (failed === 0) throw new Error(`all of ${CROWD} connections were served: there is no bound`);
  if (succeeded === 0) throw new Error(`no connection of ${CROWD} was served`);
  using newcomer = clientOf(agent, { address: `unix:${agent.socketPath}` });
  const { alive } = await newcomer.health();
  if (!alive || calls === 0) throw new Error(`the client made ${calls} calls beside the crowd`);
}

async function run(agent: SocketAgent, message: string, args: readonly string[]): Promise<Load> {
  const fields = ["content-type: application/grpc", "te: trailers", `svc-instance-token: ${agent.token}`];
  const target = "http://localhost/svc.guest.v1alpha1.GuestAgent/Health";
  const given = ["-d", message, ...fields.flatMap((field) => ["-H", field]), `--base-uri=unix:${agent.socketPath}`];
  const words = [...args, ...given, target];
  const { stdout } = await execa(PROGRAM.name, words, { reject: false, timeout: RUN_LIMIT_MS });
  const [, total, succeeded, failed] = /requests: (\d+) total,.* (\d+) succeeded, (\d+) failed,/.exec(stdout) ?? [];
  const [, dataBytes] = /\((\d+)\) data$/m.exec(stdout) ?? [];
  if (total === undefined) throw new Error(`h2load printed no counts: ${stdout}`);
  const printed = stdout.replaceAll(/^progress:.*\n/gm, "").trim();
  return {
    total: Number(total),
    succeeded: Number(succeeded),
    failed: Number(failed),
    dataBytes: Number(dataBytes),
    printed,
  };
}
