import { AgentError } from "../../domain/index.ts";

/** The refusal of a message that may not come there, or not twice. */
export function frameOrder(message: string): AgentError {
  return new AgentError("INVALID_ARGUMENT", "FRAME_ORDER", message);
}
