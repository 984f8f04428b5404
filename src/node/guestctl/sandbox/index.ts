export { images, node } from "./inventory.ts";
export { NODE_OPTIONS, openNode } from "./node.ts";
export { publish, unpublish } from "./publish.ts";
export { sandboxNames, type SandboxTarget, targetOfSandbox } from "./reach.ts";
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
