import type { GuestClient } from "../../../src/node/client/index.ts";

/** A process of the guest, by proc_pid_stat(5). */
export interface GuestProcess {
  readonly pid: number;
  readonly name: string;
  /** "Z": ended and not reaped. */
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** In clock ticks since boot. */
  readonly startTime: number;
}

/** All processes of the guest, kernel threads included. */
export async function guestProcesses(client: GuestClient): Promise<GuestProcess[]> {
  const { stdout } = await client.run({ args: ["/bin/busybox", "sh", "-c", "busybox cat /proc/[0-9]*/stat"] });
  return [...stdout.toString().matchAll(/^(\d+) \((.*)\) (.+)$/gm)].map(([, pid, name = "", rest = ""]) => {
    const [state = "", parent, group, session, ...more] = rest.split(" ");
    return {
      pid: Number(pid),
      name,
      state,
      parent: Number(parent),
      group: Number(group),
      session: Number(session),
      startTime: Number(more[14]),
    };
  });
}

/** The one process with this parent and name. Throws if there is none. */
export function childOf(processes: readonly GuestProcess[], parent: number, name: string): GuestProcess {
  const found = processes.find((each) => each.parent === parent && each.name === name);
  if (found === undefined) throw new Error(`no process "${name}" below ${parent}: ${JSON.stringify(processes)}`);
  return found;
}
