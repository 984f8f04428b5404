export {
  abortable,
  checkDuration,
  checkLimit,
  currentSignal,
  lasting,
  type OperationOptions,
  orAborted,
  throwIfAborted,
  timeoutSignal,
} from "./abort.ts";
export * from "./errors.ts";
export * from "./hypeman.ts";
export * from "./spec.ts";
export * from "./substrate.ts";
export { NODE_CHANNEL, type NodeEvent, publishNode } from "./tracing.ts";
