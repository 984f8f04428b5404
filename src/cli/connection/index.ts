export { socketAddress, socketPath, withPort } from "./address.ts";
export { ANSWER_TIMEOUT_MS, type Connector, connector, openClient } from "./open.ts";
export { CONNECTION_OPTIONS, type ConnectionValues } from "./options.ts";
export { resolveTarget } from "./target.ts";
