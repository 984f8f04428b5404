export { ProbeServer } from "./server.ts";
