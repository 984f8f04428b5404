export { imagesAnswer, nodeAnswer } from "./inventory.ts";
export { statusOf } from "./exit-status.ts";
export { NODE_OPTIONS, type NodeValues, openNode, sandboxNames, type SandboxTarget, targetOfSandbox } from "./node.ts";
export { SandboxProgress } from "./progress.ts";
export {
  AGENT_OPTION,
  ENVIRONMENT_OPTIONS,
  FREEZE_OPTION,
  RESTORE_OPTIONS,
  TIMEOUT_OPTION,
  WAIT_OPTION,
} from "./options.ts";
export { listenOf, portOf, publicationObject, publicationWords } from "./publish.ts";
export {
  awakeningObject,
  awakeningText,
  listText,
  planText,
  suspendReportText,
  sandboxObject,
  snapshotObject,
  statusText,
  sweepText,
  warningLines,
} from "./report.ts";
export { rotationText } from "./rotation.ts";
export { unbroken } from "./unbroken.ts";
