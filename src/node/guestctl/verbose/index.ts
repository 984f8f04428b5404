export { reportConnections, type Reporter, reporterOf } from "./verbose.ts";
