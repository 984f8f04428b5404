import { request } from "node:http";
import { messageOf } from "../../../shared/errors.ts";
import { polled } from "../state/index.ts";
import { currentSignal } from "../substrate/index.ts";

/**
 * Deadline of each attempt. The last attempt has the same deadline even if less time is left: with a shorter one, a
 * slow answer would look like no answer.
 */
const ATTEMPT_MS = 10_000;
const PAUSE_MS = 250;
/** How many bytes of a response body are examined, from its beginning. */
const BEGINNING_CHARACTERS = 256;
/**
 * The response of the daemon's proxy if it has no rule for the hostname (hypeman 8853445,
 * lib/ingress/config.go:436-447).
 */
const NO_RULE = /no ingress configured for hostname/;

/** Which hostname to request, where to send the request, and for how long to try. */
export interface Probe {
  /** Host name or address of the daemon's reverse proxy. */
  readonly host: string;
  readonly listenPort: number;
  readonly hostname: string;
  readonly timeoutMs: number;
}

/** Why a sandbox does not answer through its ingress. */
export interface Problem {
  /**
   * True if the proxy is at fault, because it does not answer or has no rule for the hostname. False if the server
   * behind the proxy does not answer.
   */
  readonly isProxys: boolean;
  readonly said: string;
}

/**
 * Sends requests with a hostname to the daemon's proxy until a server in a sandbox answers with any status. If no
 * server answers in time, resolves with the last problem.
 *
 * The daemon's own answer is not enough: when an ingress is created, the daemon answers 201 even if its proxy does not
 * serve the ingress (deviation 2 of the substrate contract).
 */
export async function ingressAnswers(probe: Probe): Promise<Problem | undefined> {
  const limits = { pauseMs: PAUSE_MS, limitMs: probe.timeoutMs };
  return polled(
    () => ask(probe),
    (problem) => problem === undefined,
    limits,
  );
}

async function ask({ host, listenPort, hostname }: Probe): Promise<Problem | undefined> {
  let answer;
  try {
    answer = await get(host, listenPort, hostname);
  } catch (error) {
    const said = `its proxy at ${host}:${listenPort} does not answer: ${messageOf(error)}`;
    // After a timeout, do not blame the proxy. It may still be waiting for the guest, because it waits longer than this
    // process does.
    return { isProxys: !isTimeout(error), said: isTimeout(error) ? "nothing has answered" : said };
  }
  const { status, isGuests, beginning } = answer;
  if (isGuests) return undefined;
  if (status === 404 && NO_RULE.test(beginning))
    return { isProxys: true, said: `its proxy at ${host}:${listenPort} has no rule for this hostname (404)` };
  if (status < 502 || status > 504) return undefined;
  return { isProxys: false, said: `nothing answers at that address (the proxy returned ${status})` };
}

interface ProxyAnswer {
  readonly status: number;
  /**
   * Whether the answer comes from the guest. Caddy adds the header Via (RFC 9110, 7.6.3) to answers that it forwards,
   * but not to its own answers.
   */
  readonly isGuests: boolean;
  readonly beginning: string;
}

function get(host: string, port: number, hostname: string): Promise<ProxyAnswer> {
  return new Promise((resolve, reject) => {
    const signal = currentSignal(AbortSignal.timeout(ATTEMPT_MS));
    const asked = request({ host, port, path: "/", headers: { host: hostname }, agent: false, signal }, (response) => {
      let beginning = "";
      const finish = (): void => {
        const isGuests = /caddy/i.test(response.headers.via ?? "");
        resolve({ status: response.statusCode ?? 0, isGuests, beginning });
        asked.destroy();
      };
      response.on("error", reject).on("end", finish);
      response.setEncoding("latin1").on("data", (part: string) => {
        beginning = `${beginning}${part}`.slice(0, BEGINNING_CHARACTERS);
        if (beginning.length === BEGINNING_CHARACTERS) finish();
      });
    });
    asked.on("error", reject).end();
  });
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}
