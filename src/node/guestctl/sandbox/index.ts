export { images, node } from "./inventory.ts";
export { statusOf } from "./exit-status.ts";
export { NODE_OPTIONS, openNode, sandboxNames, type SandboxTarget, targetOfSandbox } from "./node.ts";
export { SandboxProgress } from "./progress.ts";
export { checkOptions, SANDBOX_OPTIONS, type SandboxVerb, withVerbs } from "./options.ts";
export { publish, unpublish } from "./publish.ts";
export {
  awakeningObject,
  awakeningText,
  listText,
  restWords,
  sandboxObject,
  snapshotObject,
  statusText,
  sweepText,
  warningLines,
} from "./report.ts";
export { rotationText } from "./rotation.ts";
export { unbroken } from "./unbroken.ts";
