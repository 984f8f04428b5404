import manifest from "../package.json" with { type: "json" };

/** Version of this agent, as in the header `svc-agent-version` (a restored snapshot runs the agent it was taken with). */
export const AGENT_VERSION: string = manifest.version;
