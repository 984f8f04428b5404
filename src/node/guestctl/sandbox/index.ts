export { images, node } from "./inventory.ts";
export { NODE_OPTIONS, openNode, sandboxNames, type SandboxTarget, targetOfSandbox } from "./node.ts";
export { publish, unpublish } from "./publish.ts";
export {
  awakeningObject,
  awakeningStatus,
  awakeningText,
  listText,
  restWords,
  sandboxObject,
  snapshotObject,
  statusText,
  sweepText,
} from "./report.ts";
export { unbroken } from "./unbroken.ts";
