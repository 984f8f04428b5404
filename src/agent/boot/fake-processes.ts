import type { ByteSource, ChildProcess, Processes, ProcessSet } from "../domain/index.ts";

const NO_PROCESSES: ProcessSet = {
  signal: () => Promise.resolve(),
  emptyWithin: () => Promise.resolve(true),
  killWithin: () => Promise.resolve(true),
};
const ONE_LINE_OUTPUT: ByteSource = {
  start: (receiver) => {
    receiver.chunk(Buffer.from("rehearsed\n"), () => {});
    receiver.end();
  },
  startInto: () => {},
  resume: () => {},
  drain: () => Promise.resolve(true),
  close: () => {},
};
const ENDED_CHILD: ChildProcess = {
  pid: 1,
  cgroup: undefined,
  stdin: undefined,
  stdout: ONE_LINE_OUTPUT,
  stderr: ONE_LINE_OUTPUT,
  ended: Promise.resolve({ code: 0, signal: 0, coreDumped: false }),
  tree: NO_PROCESSES,
  session: NO_PROCESSES,
  leftovers: () => undefined,
  resize: () => {},
  signal: () => {},
  signalGroup: () => {},
  accounts: () => ({
    oomKilled: false,
    usage: { cpuScope: "tree", cpuUserUs: 1, cpuSystemUs: 1, peakMemory: { scope: "tree", bytes: 1 } },
  }),
  outputHolders: () => [],
  release: () => {},
};

/**
 * A replacement of Processes for the rehearsal of a restore: spawn() starts nothing and returns a child that has
 * already written one line and ended.
 */
export const FAKE_PROCESSES: Processes = { spawn: () => Promise.resolve(ENDED_CHILD) };
