import manifest from "../../package.json" with { type: "json" };

/** Version of this agent, sent in the header `svc-agent-version`: a restored snapshot runs the agent that is in it. */
export const AGENT_VERSION: string = manifest.version;
