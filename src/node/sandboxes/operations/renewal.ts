import { type Awakening, type NodeParts, reached, type SandboxEntry, whileUp } from "../state/index.ts";
import { lasting } from "../substrate/index.ts";
import {
  requireInForce,
  requireReadableSpecs,
  dutiesBeforeFiles,
  isSpecRefused,
  refusedSpec,
  type Variables,
  writeSpec,
  writeVariables,
} from "./environment.ts";

/**
 * Wakes up a frozen sandbox with changed environment variables. If the agent refuses the changed spec file, writes the
 * old file back: the session stays frozen, and the caller can resume the sandbox again. With a refused file, the agent
 * would kill the session when the time limit of its freeze expires.
 */
export async function awakenWith(node: NodeParts, entry: SandboxEntry, env: Variables): Promise<Awakening> {
  const remedy = { kind: "resumeAgain", name: entry.name } as const;
  const duties = (signal: AbortSignal): Promise<void> =>
    dutiesBeforeFiles(node, entry, () => node.guests.dial(entry), { env, hostTime: true, signal });
  await node.guests.renewIfExpired("resume", entry);
  node.step("resume", entry.name, "run the restore steps, and set the new environment");
  const before = await whileUp(node.instances.subject(entry), async (signal) => {
    await reached(
      node.guests.patience.reachTimeoutMs,
      "the agent has not answered",
      () => node.guests.ask(entry, (client) => requireReadableSpecs(client, remedy)),
      signal,
    );
    await duties(signal);
    return node.guests.ask(entry, (client) => writeVariables(client, env));
  });
  try {
    const awakening = await node.guests.awaken("resume", entry, { replaced: "the previous environment variables" });
    await node.guests.ask(entry, (client) => requireInForce(client, entry, awakening));
    return awakening;
  } catch (error) {
    if (!isSpecRefused(error)) throw error;
    return lasting(async () => {
      const refusal = await refusedSpec(node, entry, remedy);
      await whileUp(node.instances.subject(entry), async (signal) => {
        await node.guests.ask(entry, (client) => writeSpec(client, before));
        await duties(signal);
      });
      throw refusal;
    });
  }
}
