import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { startAgent } from "../fixtures/agent.ts";
import { noNamespaces } from "../fixtures/namespaces.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { noDebian } from "./debian-archive.ts";
import { exercise, shellIn } from "./exercise.ts";
import { makeRoots, type Root, ROOT_NAMES, type Roots } from "./roots.ts";
import { endAtLast, makeSandbox, type Setting } from "./sandbox.ts";

const BOTH = [true, false];

/** All combinations of the first three; the other three vary so that each occurs with each of the first. */
const SETTINGS: readonly Setting[] = BOTH.flatMap((proc) =>
  BOTH.flatMap((dev) =>
    [0, 1000].flatMap((user) =>
      BOTH.map((hostile): Setting => {
        const writable = hostile !== (user === 0);
        return { proc, dev, user, hostile, writable, init: writable === (proc === dev) ? "stays" : "is the agent" };
      }),
    ),
  ),
);

function titleOf(root: string, setting: Setting): string {
  const { proc, dev, user, init, hostile, writable } = setting;
  const mounts = [...(proc ? ["/proc"] : []), ...(dev ? ["/dev"] : [])].join(" and ") || "nothing mounted";
  const image = `${writable ? "writable" : "read-only"}${hostile ? " and hostile" : ""}`;
  return `the agent works in ${root}, ${image}, with ${mounts}, as user ${user}, where PID 1 ${init}`;
}

/**
 * Ends on SIGTERM with 42. Nothing runs in the background, for which a shell needs /dev/null. The signal goes to the
 * whole tree, so a shell may report that its child was terminated.
 */
function workloadOf({ sleep = "" }: Root, { hostile }: Setting): string {
  const pause = hostile ? "/busybox sleep 0.1" : `${sleep} 0.1`;
  return `trap "exit 42" TERM; echo "workload $GREETING"; while :; do ${pause}; done`;
}

/** Starts the agent in the root, makes it do everything, and ends it by a signal. */
async function runIn(roots: Roots, root: Root, bundle: string, setting: Setting): Promise<void> {
  const shell = shellIn(root, setting);
  const sandbox = makeSandbox(roots, root, bundle, setting);
  await using agent = await startAgent({
    through: sandbox.command,
    ...(shell && { process: { args: [...shell, workloadOf(root, setting)], env: { GREETING: "hello" } } }),
    ...(shell && { hooks: { preSnapshot: { args: [...shell, "echo hook; exit 5"] } } }),
  });
  using launcher = endAtLast(agent);
  await exercise({ agent, root, setting, sandbox });
  process.kill(launcher.pid, "SIGTERM");
  const { code } = await agent.exited;
  assert.equal(code, shell === undefined ? 0 : 42);
  assert.equal(agent.output.stdout, shell === undefined ? "" : "workload hello\n");
  assert.match(agent.output.stderr, /^(?:Terminated\n)?$/);
}

const refused = noNamespaces() ?? noDebian();

describe("the standalone agent", { skip: refused ?? false, concurrency: 2 }, () => {
  const bundle = standaloneDirectory();
  let roots: Roots;
  before(() => {
    roots = makeRoots();
  });
  after(() => roots.remove());

  for (const name of ROOT_NAMES) {
    for (const setting of SETTINGS) {
      test(titleOf(name, setting), async () => {
        const root = roots.all.find((candidate) => candidate.name === name);
        assert.ok(root !== undefined);
        await runIn(roots, root, bundle, setting);
      });
    }
  }
});
