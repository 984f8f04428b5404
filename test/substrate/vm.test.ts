import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { freePort } from "../../scripts/machine/free-port.ts";
import { Vm } from "./double/vm.ts";
import { testFolder } from "../fixtures/files.ts";
import { program } from "../fixtures/programs/index.ts";
import { GUEST_ARCHITECTURE } from "../vm/harness/architecture.ts";

const ADDRESS = "127.64.0.1";
const ROUNDS = 8;

test("a machine is gone once its address is free again: another one that listens there can follow at once", async () => {
  await using folder = await testFolder();
  const qemu = folder.at(GUEST_ARCHITECTURE.qemu.name);
  copyFileSync(program("slow_to_end"), qemu);
  const port = await freePort();
  for (let round = 0; round < ROUNDS; round++) {
    const machine = spawn(qemu, [String(port)], { cwd: folder.path, stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(machine, "exit");
    await once(machine.stdout, "data");
    writeFileSync(folder.at("qemu.pid"), `${machine.pid}\n`);
    await new Vm(folder.path).kill();
    const next = createServer().listen(port, ADDRESS);
    await once(next, "listening");
    next.close();
    await ended;
  }
});
