import manifest from "../../package.json" with { type: "json" };

/**
 * Version of this agent. The agent sends it in the header `svc-agent-version`. After a restore, the agent in the
 * snapshot continues to run, so its version may differ from the one that is installed on the host.
 */
export const AGENT_VERSION: string = manifest.version;
