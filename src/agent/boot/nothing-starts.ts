import type { ByteSource, ChildProcess, Processes, ProcessSet } from "../domain/index.ts";

const NOBODY: ProcessSet = {
  signal: () => Promise.resolve(),
  emptyWithin: () => Promise.resolve(true),
  killWithin: () => Promise.resolve(true),
};
const ONE_LINE: ByteSource = {
  start: (receiver) => {
    receiver.chunk(Buffer.from("rehearsed\n"), () => {});
    receiver.end();
  },
  startInto: () => {},
  resume: () => {},
  drain: () => Promise.resolve(true),
  close: () => {},
};
const ENDED: ChildProcess = {
  pid: 1,
  stdin: undefined,
  stdout: ONE_LINE,
  stderr: ONE_LINE,
  ended: Promise.resolve({ code: 0, signal: 0, coreDumped: false }),
  tree: NOBODY,
  session: NOBODY,
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

/** For a rehearsal of a command: starts none, and says that it wrote a line and has ended. */
export const NOTHING_STARTS: Processes = { spawn: () => Promise.resolve(ENDED) };
