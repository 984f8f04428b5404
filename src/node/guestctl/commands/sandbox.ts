import { type Command, defineGroup, SANDBOX_VERBS, type Subcommand } from "../cli/index.ts";
import { create } from "./sandbox/create.ts";
import { fork } from "./sandbox/fork.ts";
import { images, node } from "./sandbox/inventory.ts";
import { ls } from "./sandbox/ls.ts";
import { metrics } from "./sandbox/metrics.ts";
import { publish, unpublish } from "./sandbox/publish.ts";
import { resume, start } from "./sandbox/resume.ts";
import { rm } from "./sandbox/rm.ts";
import { rotate } from "./sandbox/rotate.ts";
import { snapshot } from "./sandbox/snapshot.ts";
import { standby } from "./sandbox/standby.ts";
import { status } from "./sandbox/status.ts";
import { stop } from "./sandbox/stop.ts";
import { sweep } from "./sandbox/sweep.ts";
import { watch } from "./sandbox/watch.ts";

/** The subcommands, in the order in which they are used during the life of a sandbox. */
const COMMANDS: ReadonlyMap<string, Subcommand> = new Map(
  Object.entries({
    create,
    ls,
    status,
    standby,
    resume,
    stop,
    start,
    snapshot,
    fork,
    publish,
    unpublish,
    rotate,
    rm,
    watch,
    sweep,
    metrics,
    node,
    images,
  }),
);

export const sandbox: Command = defineGroup({
  name: "sandbox",
  about: `Creates and manages sandboxes that contain the agent. The commands run the restore steps after a restore, give each
fork its own credentials, and run hooks and idle actions. "sweep" removes what interrupted commands left. All other
commands of guestctl find a sandbox by its name: "guestctl exec --sandbox NAME".`,
  commands: COMMANDS,
  notes: `Each step is printed as a line on standard error; at a terminal, one line shows the current step. With --json, each step
is an object with "progress", and the result is one object on standard output, with "duration_ms" if the command changed
something. Errors have a "code". Every node of a substrate requires its own node id and state directory.`,
  statuses: `0 if the command succeeded; 1 if not everything succeeded (see the warnings); 3 if it succeeded, but
clones may share random numbers, keys or secrets; 125 if guestctl failed.`,
  examples: [
    "sandbox create --name box --agent guest-agent.tar.gz debian:12 sleep 1000",
    "sandbox standby box",
    "sandbox resume box",
    "sandbox fork box --name twin -e TOKEN=other",
    "sandbox rm box twin",
  ],
  hints: SANDBOX_VERBS,
});
