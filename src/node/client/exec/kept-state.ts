import type { ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type { Settlement } from "../settlement.ts";
import type { KeptOutputs } from "./kept-output.ts";

/** What the agent has said of the command: its first answer, and how far its outputs have come. */
export interface Session {
  readonly started: ExecStarted;
  readonly outputs: KeptOutputs;
}

/** Where a kept command's calls are. A lost connection leads from "attached" to "reconnecting", and that back. */
export type State =
  /** The agent has not answered the first call. */
  | { readonly kind: "starting" }
  /** It has answered the present call: frames may be sent. */
  | { readonly kind: "attached" }
  /** Between two calls; with `attempt` the agent has not answered the later one yet. */
  | { readonly kind: "reconnecting"; readonly attempt?: Settlement<undefined> }
  /** The exit has come, and the call is about to end. */
  | { readonly kind: "exited" }
  /** The listener has been told of the end. */
  | { readonly kind: "over" };
