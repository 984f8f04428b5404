import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { GuestError } from "../../src/node/client/index.ts";
import { startAgent } from "../../test/fixtures/agent.ts";
import { fuseMount } from "../../test/fixtures/fuse-mount.ts";
import { clientOf } from "../../test/fixtures/guest-client.ts";
import { memoryCgroup } from "../../test/fixtures/memory-cgroup.ts";
import type { Attack, Target } from "./attack.ts";

/** Calls into the dead file system: several times the number of threads that the agent gives up. */
const HUNG_CALLS = 48;
const ANSWER_LIMIT_MS = 60_000;
/** Memory limit of the agent and its commands together. */
const MEMORY_BYTES = 384 * 2 ** 20;
/** Each smaller than the agent; together more than there is. */
const HOGS = 100;
const HOG = `for i in $(seq ${HOGS}); do (x=$(head -c 8000000 /dev/zero | tr '\\0' x); sleep 60) & done
until grep -q "oom_kill [1-9]" "$0"; do sleep 0.1; done
kill -KILL 0`;

/** Calls into a file system whose server never answers, twice, beside others that must go on. */
async function readDeadFiles({ agent, scratch }: Target): Promise<number> {
  const folder = join(scratch, "dead");
  await mkdir(folder, { recursive: true });
  await writeFile(join(scratch, "living"), "content");
  await using mount = await fuseMount("hanging_mount", folder);
  if (mount === undefined) throw new Error("this machine offers no FUSE; run it as root with /dev/fuse");
  using client = clientOf(agent);
  const options = { deadlineMs: ANSWER_LIMIT_MS };
  const refused = async (index: number): Promise<boolean> => {
    const problem: unknown = await client.statPath(`${folder}/${index}`, options).catch((error: unknown) => error);
    return problem instanceof GuestError && problem.reason === "FILE_SYSTEM_HUNG";
  };
  for (let round = 0; round < 2; round++) {
    const dead = Promise.all(Array.from({ length: HUNG_CALLS }, async (_, index) => refused(index)));
    const { size } = await client.statPath(join(scratch, "living"), options);
    if (size !== 7) throw new Error("a living file was not described beside a dead file system");
    if (!(await dead).every(Boolean)) throw new Error("a call into a dead file system was not given up");
  }
  return 2 * HUNG_CALLS;
}

/** Commands that use the memory up, beside an agent of their own, which must outlive them. Counts those that the kernel kills. */
async function useMemoryUp(): Promise<number> {
  await using limited = await memoryCgroup(MEMORY_BYTES);
  if (limited === undefined) throw new Error("this machine offers no memory cgroup; run it as root");
  await using agent = await startAgent({ through: limited.through });
  using client = clientOf(agent);
  await client.run({ args: ["sh", "-c", HOG, limited.events] });
  await client.health({ deadlineMs: ANSWER_LIMIT_MS });
  const { code, signal } = await agent.stop();
  if (code !== 0) throw new Error(`the agent ended with ${code ?? signal}`);
  return Number(/^oom_kill (\d+)$/m.exec(await readFile(limited.events, "utf8"))?.[1] ?? 0);
}

export const guestAttacks: readonly Attack[] = [
  { name: "a file system that never answers", weight: 1, run: readDeadFiles },
  { name: "commands that use the memory up", weight: 1, run: useMemoryUp },
];
