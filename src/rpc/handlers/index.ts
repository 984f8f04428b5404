import type { Exec } from "../../exec/index.ts";
import { GuestAgent } from "../../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Health } from "../../health/index.ts";
import type { Router } from "../router.ts";
import { serveExec } from "./exec.ts";
import { healthResponse } from "./health.ts";

export { timestamp } from "./timestamp.ts";

/** The capabilities behind the GuestAgent service. */
export interface Capabilities {
  readonly health: Health;
  readonly exec: Exec;
}

/** Puts the GuestAgent service on a router. */
export function serveGuestAgent(router: Router, capabilities: Capabilities): void {
  const { health, exec } = capabilities;
  router.unary(GuestAgent.method.health, () => healthResponse(health.report()));
  router.bidiStream(GuestAgent.method.exec, (call) => serveExec(exec, call));
}
