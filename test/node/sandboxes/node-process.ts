/**
 * A node in a process of its own, which can be killed: `node-process.ts PARTS OPERATION KILL_AT [OPTIONS]`. Carries out
 * the operation and is killed before the step of that number; prints "done" if it completes. With options of a node, as
 * JSON, prints each step as a line on standard error.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type NodeParts, openNode } from "./node.ts";

const [parts = "", operation = "", killAt = "", options] = process.argv.slice(2);
const known = JSON.parse(parts) as NodeParts;
let steps = 0;
const node = await openNode(known, {
  ...(JSON.parse(options ?? "{}") as object),
  onStep: (step) => {
    if (options !== undefined) process.stderr.write(`${step.operation} ${step.name}: ${step.step}\n`);
    if (String(steps++) === killAt) process.kill(process.pid, "SIGKILL");
  },
});
try {
  if (operation === "create") await node.create({ image: "debian:12", name: "made" });
  else if (operation === "fork") await node.fork("box", { name: "forked" });
  else if (operation === "snapshot") await node.snapshot("box", { name: "taken" });
  else if (operation === "remove") await node.remove("box");
  else if (operation === "standby") await node.standby("box");
  else if (operation === "rotate") await node.rotate("box");
  else if (operation === "sweep") process.stdout.write(`${JSON.stringify(await node.sweep())}\n`);
  else if (operation === "publish") await node.publish("box", 80, "web.example.com", { listenPort: known.agentPort });
  else if (operation === "unpublish") await node.unpublish("box", "web.example.com", known.agentPort);
  else if (operation === "create-on-full-disk") {
    fill(join(known.stateDirectory, "filler"));
    await node.create({ image: "debian:12", name: "made" });
  } else throw new Error(`there is no operation ${operation}`);
  process.stdout.write("done\n");
} catch (error) {
  process.stdout.write(`${error instanceof Error && "code" in error ? String(error.code) : String(error)}\n`);
  if (options !== undefined && error instanceof Error) process.stderr.write(`${error.message}\n`);
}
node.close();

/** Fills the disk to the last byte. */
function fill(file: string): void {
  try {
    for (;;) writeFileSync(file, Buffer.alloc(4096), { flag: "a" });
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ENOSPC")) throw error;
  }
}
