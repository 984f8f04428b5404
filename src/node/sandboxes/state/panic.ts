import { connect } from "node:tls";
import { errnoOf } from "../../../shared/errors.ts";
import type { Instance, Substrate } from "../substrate/index.ts";

/** The kernel's console line about a panic. */
const PANIC = /Kernel panic - not syncing: (.*)/;
const SHOWN_LINES = 10;
/** How long an agent may take to send the first bytes of its TLS handshake. */
const PROBE_MS = 5_000;

/** What the console shows when a guest's kernel has panicked. */
export interface Panic {
  readonly line: string;
  /** The console lines from the panic on. */
  readonly consoleTail: readonly string[];
}

/** Finds a panic in console lines; undefined if there is none. */
export function panicIn(lines: readonly string[]): Panic | undefined {
  const at = lines.findIndex((line) => PANIC.test(line));
  const line = lines[at]?.trim();
  return line === undefined ? undefined : { line, consoleTail: lines.slice(at, at + SHOWN_LINES) };
}

/**
 * Detects a kernel panic of an instance. The console must have a panic line, and the agent's port must not answer. The
 * line alone proves nothing, because a workload may print it.
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
 * Whether a TLS handshake with an agent's port gets no answer. A TCP connection alone does not prove that the agent
 * lives, because a proxy may accept the connection on behalf of a dead VM.
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
    // A guest that refuses the connection has a live kernel, and so does a guest that answers with a TLS alert.
    socket.on("error", (error) => done(!/^(?:ECONNREFUSED|ERR_SSL_|EPROTO)/.test(errnoOf(error) ?? "")));
    socket.once("close", () => done(true));
  });
}
