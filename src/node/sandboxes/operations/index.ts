export { create } from "./create.ts";
export { fork, type ForkOptions } from "./fork.ts";
export { type ImageInfo, imageInfos } from "./images.ts";
export { publish, type PublishOptions, served, unfinished, unpublish, withdraw } from "./ingress.ts";
export { discard, orphanedRecord, orphanedRecords, volumeLeft } from "./removal.ts";
export { keptSnapshot, madeSnapshot, snapshot } from "./snapshot.ts";
export { finishRotation, rotate } from "./rotate.ts";
export { stop, type Stopping } from "./stop.ts";
export {
  paused,
  resume,
  type ResumeOptions,
  sourceStillSuspended,
  standby,
  type SuspendOptions,
  type Suspension,
  unreached,
} from "./suspend.ts";
export { isBeingSuspended, settled } from "./unsettled.ts";
