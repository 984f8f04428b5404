const MIB = 2 ** 20;

/** Amount of work for one value of a row. */
export interface Scale {
  /** Values of each row; between two of a contender all the others have their turn. */
  readonly rounds: number;
  readonly healthCalls: number;
  /** Commands before those that are counted. */
  readonly warmUpExecs: number;
  readonly execs: number;
  readonly execsAtOnce: number;
  readonly roundTrips: number;
  readonly streamBytes: number;
  readonly terminalBytes: number;
  /** Each of 64 files. */
  readonly parallelBytes: number;
  /** Values of each row of a tree, and by how much its trees are smaller. */
  readonly treeRounds: number;
  readonly treePart: number;
  /** Servers of which the first commands are measured. */
  readonly newServers: number;
  /** Calls of each kind beside endless loops. */
  readonly callsBesideLoops: number;
  readonly starts: number;
  /** New servers of which the first call is measured. */
  readonly firstCalls: number;
  /** From the last work to rest: the agent returns memory after 10 s. */
  readonly settleSeconds: number;
  readonly idleSeconds: number;
}

/** A quarter of an hour. */
export const FULL: Scale = {
  rounds: 5,
  healthCalls: 10_000,
  warmUpExecs: 1_000,
  execs: 300,
  execsAtOnce: 1_000,
  roundTrips: 3_000,
  streamBytes: 512 * MIB,
  terminalBytes: 64 * MIB,
  parallelBytes: 8 * MIB,
  treeRounds: 3,
  treePart: 1,
  newServers: 4,
  callsBesideLoops: 60,
  starts: 31,
  firstCalls: 7,
  settleSeconds: 25,
  idleSeconds: 35,
};

/** A minute. */
export const QUICK: Scale = {
  rounds: 3,
  healthCalls: 2_000,
  warmUpExecs: 100,
  execs: 50,
  execsAtOnce: 150,
  roundTrips: 500,
  streamBytes: 128 * MIB,
  terminalBytes: 8 * MIB,
  parallelBytes: 2 * MIB,
  treeRounds: 1,
  treePart: 0.1,
  newServers: 3,
  callsBesideLoops: 30,
  starts: 11,
  firstCalls: 2,
  settleSeconds: 12,
  idleSeconds: 3,
};
