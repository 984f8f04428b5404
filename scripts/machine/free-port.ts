export { freePort } from "../../src/node/testing/free-port.ts";
