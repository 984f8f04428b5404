import type { NodeStatus, Sandboxes } from "../../sandboxes/index.ts";
import {
  type Answer,
  inSnakeCase,
  printable,
  type ReportLine,
  reportText,
  sizeWords,
  tableText,
} from "../cli/index.ts";
import { credentialLines } from "./rotation.ts";

/** Describes the daemon, its features, and its host's resources. */
export async function nodeAnswer(sandboxes: Sandboxes): Promise<Answer> {
  const status = await sandboxes.status();
  return { text: reportText(nodeLines(status)), json: nodeObject(status) };
}

/** Lists all images, with a next step for each that is not ready. */
export async function imagesAnswer(sandboxes: Sandboxes): Promise<Answer> {
  const all = await sandboxes.images();
  const rows = all.map(({ name, status, apparentBytes, allocatedBytes, digest }) =>
    [name, status, sizeWords(apparentBytes), sizeWords(allocatedBytes), digest || "-"].map(printable),
  );
  const advice = all.flatMap(({ name, status, problem, nextStep }) =>
    problem === undefined ? [] : [`${printable(`${name} is ${status}: ${problem}; ${nextStep}`)}\n`],
  );
  const table = tableText([["NAME", "STATUS", "APPARENT", "ALLOCATED", "DIGEST"], ...rows]);
  return { text: `${table}${advice.join("")}`, json: { images: all.map(inSnakeCase) } };
}

function nodeLines(status: NodeStatus): ReportLine[] {
  const { apiVersion, daemonVersion, defaultHypervisor, hypervisors, hasCapabilities, capacity } = status;
  const { vcpus, memoryBytes, diskBytes, used } = capacity;
  const api = apiVersion === undefined ? "" : `, API ${apiVersion}`;
  const startable = Object.entries(hypervisors).map(([name, features]): ReportLine => {
    return [name === defaultHypervisor ? `${name} (default)` : name, features.join(", ")];
  });
  return [
    ["daemon", `answers; version ${daemonVersion}${api}`],
    ...(hasCapabilities
      ? startable
      : [["hypervisors", "not known: the daemon's API has no endpoint /capabilities"] as const]),
    ["processors", `${vcpus}, ${used.vcpus} in use`],
    ["memory", `${sizeWords(memoryBytes)}, ${sizeWords(used.memoryBytes)} in use`],
    ...credentialLines(status),
    ["disk", diskBytes === 0 ? "not known" : `${sizeWords(diskBytes)}, ${sizeWords(used.diskBytes)} in use`],
    ["egress_control", "false: the substrate accepts an egress policy but does not enforce it"],
    ["live_checkpoint", "false: taking a snapshot suspends the sandbox"],
  ];
}

function nodeObject(status: NodeStatus): object {
  const { capacity, expiring, ...described } = status;
  const { vcpus, memoryBytes, diskBytes, used } = capacity;
  return {
    health: "ok",
    ...inSnakeCase(described),
    expiring: expiring.map(({ name, expireMs }) => ({ name, expire_at: new Date(expireMs).toISOString() })),
    resources: {
      vcpus: { most: vcpus, used: used.vcpus },
      memory_bytes: { most: memoryBytes, used: used.memoryBytes },
      // 0 means that the size is not known.
      disk_bytes: { most: diskBytes === 0 ? null : diskBytes, used: used.diskBytes },
    },
  };
}
