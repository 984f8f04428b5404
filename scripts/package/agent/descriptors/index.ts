export { readyDescriptors } from "./plugin.ts";
