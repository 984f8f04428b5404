import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";

/** The agent's token while its code cache is made. */
export const TOKEN = "warm-up";

const RETRY_MS = 5;

/**
 * Makes the calls that every sandbox begins with, a Health and a command, to an agent in this process. It uses a unix
 * socket, because a builder may have no network. Resolves once the agent reads no file for them either, with the
 * client, whose connection is still open.
 */
export async function firstCalls(socket: string): Promise<GuestClient> {
  const client = connect({ address: `unix:${socket}`, token: TOKEN });
  await client.health();
  // The streams end before the command, so that every run calls the same functions: the cache must have the same bytes.
  const command = client.exec({ args: ["/bin/sh", "-c", "exec >&- 2>&-; read line"], stdin: true });
  command.stdout.resume();
  command.stderr.resume();
  const standardError = `/proc/${await command.started}/fd/2`;
  while (existsSync(standardError)) await delay(RETRY_MS);
  await client.health();
  command.stdin.end();
  await command.wait();
  do await delay(RETRY_MS);
  while (process.getActiveResourcesInfo().some((request) => request.startsWith("FSReq")));
  return client;
}
