import { SandboxError, type Substrate } from "../substrate/index.ts";
import { type AgentSource, type AgentVolume, agentVolume } from "./injection.ts";

/** Tag of the agents' volumes. */
const AGENT_TAG = "svc.agent";

/** The volumes of agents, which all nodes of a substrate share: one for each archive that sandboxes were made with. */
export class AgentVolumes {
  readonly #substrate: Substrate;
  readonly #source: AgentSource | undefined;
  /** Only its name and program: the content is large. */
  #own: Omit<AgentVolume, "content"> | undefined;

  /** @param source the agent that this node puts into sandboxes */
  constructor(substrate: Substrate, source: AgentSource | undefined) {
    this.#substrate = substrate;
    this.#source = source;
  }

  /** This node's volume, there or not. Rejects with SandboxError (INVALID_SPEC) without a readable agent. */
  async own(): Promise<Omit<AgentVolume, "content">> {
    if (this.#own === undefined) {
      const { id, entrypoint } = await this.#read();
      this.#own = { id, entrypoint };
    }
    return this.#own;
  }

  /** Makes this node's volume if it does not exist. */
  async provide(): Promise<void> {
    const { id } = await this.own();
    if ((await this.#substrate.volume(id)) !== undefined) return;
    const { content } = await this.#read();
    try {
      await this.#substrate.createVolume({ id, tags: { [AGENT_TAG]: "true" } }, content);
    } catch (error) {
      // Not a failure if another node has just made it, or if only the answer was lost.
      if ((await this.#substrate.volume(id)) === undefined) throw error;
    }
  }

  /** Ids of the volumes older than this node's; none if it has no agent, or has made no sandbox with it yet. */
  async older(): Promise<readonly string[]> {
    if (this.#source === undefined) return [];
    const all = await this.#substrate.volumes({ [AGENT_TAG]: "true" });
    // The usual case, in which the archive need not be read.
    if (all.length < 2) return [];
    const { id: ownId } = await this.own();
    const own = all.find(({ id }) => id === ownId);
    return all.flatMap(({ id, createdMs }) => (own !== undefined && createdMs < own.createdMs ? [id] : []));
  }

  #read(): Promise<AgentVolume> {
    if (this.#source !== undefined) return agentVolume(this.#source);
    const remedy = { kind: "archive", name: "" } as const;
    throw new SandboxError("INVALID_SPEC", "no archive of an agent is given to put into the sandbox", undefined, {
      remedy,
    });
  }
}
