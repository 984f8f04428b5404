import manifest from "../../package.json" with { type: "json" };

/**
 * Version of this agent, sent in the header `svc-agent-version`. A restored snapshot runs the agent that it contains,
 * whatever version is installed on the host.
 */
export const AGENT_VERSION: string = manifest.version;
