import { freePort } from "../../../scripts/machine/free-port.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Instances } from "./instances.ts";
import type { Resolve } from "./proxy.ts";

/**
 * Finds where a port of an instance is reached. A machine gets a port of the host for it when it is first asked for;
 * the next machine of that instance another.
 */
export function upstreams(instances: Instances): Resolve {
  const forwards = new Map<string, Promise<number>>();
  return async (name, guestPort) => {
    const instance = found(instances, name);
    const host = instance?.network.ip;
    if (instance === undefined || host === undefined || host === null) return undefined;
    const vm = instances.machines.of(instance.id);
    const { pid } = vm;
    if (pid === undefined || vm.isPaused) return "unreachable";
    const key = `${instance.id} ${pid} ${guestPort}`;
    const port = forwards.get(key) ?? forwarded();
    forwards.set(key, port);
    port.catch(() => forwards.delete(key));
    return { host, port: await port };

    async function forwarded(): Promise<number> {
      const free = await freePort();
      await vm.forward(host ?? "", free, guestPort);
      return free;
    }
  };
}

function found(instances: Instances, name: string): InstanceRecord | undefined {
  try {
    return instances.get(name);
  } catch {
    return undefined;
  }
}
