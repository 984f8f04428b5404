import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { clientOf } from "../../test/fixtures/guest-client.ts";
import type { Attack, Target } from "./attack.ts";

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/** A workload that is not root. */
const WORKLOAD_USER = "65534:65534";
const BURST = 32;
/** Runs of the hostile workload; each takes up to two seconds. */
const COMMANDS = 28;

/** Attacks the workload's socket: half a request, a too large one, garbage, nothing. */
async function abuseSocket({ agent, inputs, random }: Target): Promise<number> {
  const openings = [
    () => "POST / HTTP/1.1\r\ncontent-length: 100000000\r\n\r\n",
    () => `POST /${"x".repeat(100_000)} HTTP/1.1\r\n`,
    () => "GET / HTTP/1.1\r\nhost: x\r\n",
    () => Buffer.concat([Buffer.from(PREFACE), random.bytes(200)]),
    () => random.bytes(1 + random.below(2_000)),
    () => "",
  ] as const;
  let sent = 0;
  while (sent < inputs) {
    const sockets: Socket[] = [];
    for (let count = 0; count < BURST; count++, sent += 1) {
      const socket = connect(agent.workloadSocket);
      socket.on("error", () => {});
      socket.write(random.oneOf(openings)());
      sockets.push(socket);
    }
    // A connect refused because the backlog is full (EAGAIN) counts too.
    await Promise.allSettled(sockets.map((socket) => Promise.race([once(socket, "connect"), once(socket, "close")])));
    await delay(5);
    for (const socket of sockets) socket.destroy();
  }
  return sent;
}

/** A hostile workload that is not root: it reads, signals, traces, forks, fills disks, and shadows its own paths. */
const HOSTILE: readonly string[] = [
  // Each of these reads must be refused; otherwise it prints what it found.
  'for file in environ mem maps; do cat "/proc/$1/$file" >/dev/null 2>&1 && echo "read $file"; done; true',
  'ls "/proc/$1/fd" >/dev/null 2>&1 && echo "listed fd"; true',
  'for signal in TERM KILL STOP HUP; do kill -"$signal" "$1" 2>/dev/null && echo "sent $signal"; done; true',
  "i=0; while [ $i -lt 200 ]; do (sleep 5 &) 2>/dev/null; i=$((i+1)); done; true",
  "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 1000",
  'yes "$1" | head -c 20000000',
  "ulimit -n 16; exec 3<&0 4<&0 5<&0; true",
];

async function hostileWorkload({ agent, inputs }: Target): Promise<number> {
  using client = clientOf(agent);
  const count = Math.min(Math.max(inputs, HOSTILE.length), COMMANDS);
  for (let sent = 0; sent < count; sent++) {
    const script = HOSTILE[sent % HOSTILE.length] ?? "true";
    const args = ["sh", "-c", script, "sh", String(agent.pid)];
    const { stdout, code } = await client.run({ args, user: WORKLOAD_USER, timeoutMs: 2_000 });
    if (stdout.length < 1_000 && stdout.length > 0)
      throw new Error(`a workload of uid 65534 did: ${stdout.toString()}`);
    if (code !== 0 && code !== 143 && code !== 137) throw new Error(`a hostile command ended with ${code}`);
  }
  // The background sleeps of the fork loop live on by design, until they end by themselves.
  await delay(5_500);
  // Cgroups that were busy with them are removed with the next commands.
  for (let command = 0; command < COMMANDS; command++) await client.run({ args: ["true"] });
  return count;
}

export const workloadAttacks: readonly Attack[] = [
  { name: "workload socket", weight: 10, run: abuseSocket },
  { name: "hostile workload", weight: 1, run: hostileWorkload },
];
