import { connect } from "node:tls";
import { errnoOf } from "../../../shared/errors.ts";
import type { Instance, Substrate } from "../substrate/index.ts";

/** What a kernel prints that has come to its end. */
const PANIC = /Kernel panic - not syncing: (.*)/;
const SHOWN_LINES = 10;
/** Time for the first bytes of an agent's handshake. */
const PROBE_MS = 5_000;

/** A panic of a guest's kernel, as on its console. */
export interface Panic {
  readonly line: string;
  /** The console from that line on. */
  readonly consoleTail: readonly string[];
}

/** The panic on a console; undefined: there is none. */
export function panicIn(lines: readonly string[]): Panic | undefined {
  const at = lines.findIndex((line) => PANIC.test(line));
  const line = lines[at]?.trim();
  return line === undefined ? undefined : { line, consoleTail: lines.slice(at, at + SHOWN_LINES) };
}

/**
 * The panic of an instance that ran before: its console has the words, and nothing answers at its agent's port. The
 * words alone say nothing, because a workload may print them.
 */
export async function panicOf(
  substrate: Substrate,
  { id, ip }: Instance,
  agentPort: number,
  consoleLines: (substrate: Substrate, id: string) => Promise<readonly string[]>,
): Promise<Panic | undefined> {
  const panic = panicIn(await consoleLines(substrate, id).catch(() => []));
  return panic !== undefined && ip !== undefined && (await isSilent(ip, agentPort)) ? panic : undefined;
}

/**
 * Whether a TLS handshake with an agent's port gets no answer. A proxy before a dead machine may accept a connection,
 * and may end it.
 */
function isSilent(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, rejectUnauthorized: false, timeout: PROBE_MS });
    const done = (isDead: boolean): void => {
      socket.destroy();
      resolve(isDead);
    };
    socket.once("secureConnect", () => done(false));
    socket.once("timeout", () => done(true));
    // A kernel that refuses is alive; so is what answers with an alert of TLS.
    socket.on("error", (error) => done(!/^(?:ECONNREFUSED|ERR_SSL_|EPROTO)/.test(errnoOf(error) ?? "")));
    socket.once("close", () => done(true));
  });
}
