import { execa } from "execa";
import type { AgentCommand } from "../fixtures/agent.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import type { Endpoint } from "../transports/guest.ts";

/** A client in another language: a program that runs the suite's cases by itself. */
export interface ClientProgram {
  readonly make: string;
  /** Builds it; gives the command, or the reason to skip the tests that need it. */
  readonly provide: () => Promise<AgentCommand | string>;
}

/** What the program is to work with. */
export interface ProgramTask {
  readonly endpoint: Endpoint;
  /** Folder of ca.pem, client.pem and client.key. */
  readonly certificatesFolder: string;
  readonly token: string;
  /** A folder of the guest. */
  readonly folder: string;
  /** Marks the commands that the program gives up: an argument of sleep(1). */
  readonly pause: string;
}

const RUN_TIMEOUT_MS = 500_000;

/** Runs the program; the line that it printed for each case, by the case's name. */
export async function runProgram(command: AgentCommand, task: ProgramTask): Promise<ReadonlyMap<string, string>> {
  const { endpoint, certificatesFolder, token, folder, pause } = task;
  const place =
    "socketPath" in endpoint.dial
      ? ["--target", `unix:${endpoint.dial.socketPath}`]
      : [
          "--target",
          `127.0.0.1:${endpoint.dial.port}`,
          "--certificates",
          certificatesFolder,
          "--server-name",
          SERVER_NAME,
        ];
  const [file, ...args] = command;
  const { stdout, stderr, timedOut } = await execa(file, [...args, ...place, "--folder", folder, "--pause", pause], {
    env: { GUEST_TOKEN: token },
    timeout: RUN_TIMEOUT_MS,
    reject: false,
  });
  const lines = stdout.matchAll(/^(?:ok|FAILED) ([\w ]+)\b.*$/gm);
  const said = new Map(Array.from(lines, ([line, name = ""]) => [name, line] as const));
  if (said.size === 0) throw new Error(`the client said nothing${timedOut ? " in time" : ""}: ${stderr}`);
  return said;
}
