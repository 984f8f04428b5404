import type { Requirement } from "./coverage.ts";

const LAUNCHER = "agent/native/launcher.test.ts";
const CRASH = "agent/supervision/crash.test.ts";
const SANDBOX_CASES = "vm/cases/sandbox-cases.ts";
const CGROUPS = "agent/supervision/cgroups.test.ts";
const ENDS = "agent/session/ends.test.ts";
const STOP = "agent/workload/stop.test.ts";
const END = "agent/exec/end.test.ts";
const BACKGROUND_OUTPUT = "agent/session/background-output.test.ts";
const REUSED_ID = "agent/platform/processes/reused-id.test.ts";
const STANDING = "agent/supervision/standing.test.ts";
const MEMORY_CASES = "vm/cases/memory-cases.ts";
const PIPES = "agent/exec/pipes.test.ts";
const STREAMS = "agent/supervision/streams.test.ts";
const HARD_CASES = "agent/supervision/hard-cases.test.ts";
const STANDARD_ERROR = "agent/supervision/standard-error.test.ts";
const DESCRIPTORS = "agent/supervision/descriptors.test.ts";

/** What supervision must do (docs/agent/reliability.md), and the tests that show it: file, and part of the title. */
export const PROMISES: Readonly<Record<string, readonly Requirement[]>> = {
  Launcher: [
    {
      says: "Environment by sealed memfd; nothing secret in environ or command line of the agent",
      tests: [
        [LAUNCHER, "hands the environment over byte for byte, whatever is in it"],
        [LAUNCHER, "leaves no secret in environ or command line of itself and the agent"],
      ],
    },
    {
      says: "The image's variables and files never act on the agent",
      tests: [
        [LAUNCHER, "starts the agent with nothing of the image's environment, which would break it"],
        ["system/traps.test.ts", "has variables each of which breaks a plain Node"],
      ],
    },
    {
      says: "All signals forwarded, as PID 1, as the child of an init and of a shell",
      tests: [
        [LAUNCHER, "passes on all 62 signals that can be caught, and each of several real-time ones"],
        [LAUNCHER, "keeps signals that come faster than the agent takes them"],
      ],
    },
    {
      says: "Orphans reaped and statuses mirrored in the same three settings",
      tests: [
        [LAUNCHER, "reaps 200 orphans and leaves no zombie"],
        [LAUNCHER, "mirrors exit codes and deaths by a signal"],
        [LAUNCHER, "ends by the agent's own signal where it is not PID 1"],
      ],
    },
    {
      says: "A crash of the agent leaves no process and no cgroup, even of a loop of forks",
      tests: [
        [CRASH, "leaves nothing: no process of a workload and a command that run away"],
        [LAUNCHER, "asks what it left to end and exits with the agent's status"],
        [LAUNCHER, "kills what ignores SIGTERM after a crash, stopped processes and new sessions too"],
        [LAUNCHER, "asks the children of what it left too, each once, and waits for them"],
        [LAUNCHER, "leaves with the status of an agent that was killed although its standard error is full"],
      ],
    },
    {
      says: "The launcher for arm64 does the same, in an emulated machine",
      tests: [[SANDBOX_CASES, "leaves with the workload's status when init forwards the stop"]],
    },
  ],
  Trees: [
    {
      says: "A cgroup for each exec and hook, also where cgroup2 is not mounted; killed whole",
      tests: [
        [CGROUPS, "with the daemon that forked twice and left the session"],
        [CGROUPS, "is so too where cgroup2 is not mounted, and sees no mount of it"],
      ],
    },
    {
      says: "Without cgroups a walk of the descendants that wins against a loop of forks",
      tests: [
        [CGROUPS, "says so, and kills what a walk of /proc finds"],
        [
          "agent/platform/processes/tree.test.ts",
          "a tree that forks faster than it is killed is killed to the last process",
        ],
      ],
    },
    {
      says: "oom_killed from memory.events",
      tests: [[SANDBOX_CASES, "a command over the memory limit of its cgroup ends with oom_killed"]],
    },
    {
      says: "Timeout, hook timeout, stop and shutdown end the whole tree, which has the whole grace",
      tests: [
        [ENDS, "an exec's at its timeout"],
        [ENDS, "an exec's when the agent leaves"],
        [ENDS, "a hook's at its timeout"],
        [ENDS, "ready_cmd's at its timeout"],
        [ENDS, "the workload's at a stop"],
        [ENDS, "what the workload leaves when it ends by itself"],
        ["agent/hooks/run.test.ts", "is dead with its whole tree before the answer comes"],
        ["agent/workload/workload.test.ts", "on SIGTERM gives the workload its grace, and refuses new calls meanwhile"],
        [STOP, "kills a workload at the end of its grace"],
        [STOP, "takes descendants of the workload along that left its session and ignore SIGTERM"],
        [STOP, "gives daemons that forked twice their grace too"],
        [STOP, "leaves none of them at the end of the grace, nor what commands left"],
        [CGROUPS, "takes its execs' daemons along that are still in a running command's tree"],
      ],
    },
    {
      says: "A lost client ends the command's session, and nobody beyond it",
      tests: [
        [END, "by cancelling: gets SIGHUP and ends"],
        [ENDS, "takes background jobs in groups of their own along"],
        [ENDS, "gives each process of the session its grace"],
        [ENDS, "kills who ignores it and is still in the session, and nobody else"],
      ],
    },
    {
      says: "Whatever a command does to its own cgroup, it ends and the agent lives",
      tests: [
        ["agent/session/hostile-cgroup.test.ts", "it gets its grace, all of it ends, and agent and workload live"],
      ],
    },
    {
      says: "Background processes live on after a normal end, and may write to the output they were given",
      tests: [
        [BACKGROUND_OUTPUT, "an exec"],
        [BACKGROUND_OUTPUT, "a hook"],
        [BACKGROUND_OUTPUT, "ready_cmd"],
        [BACKGROUND_OUTPUT, "costs no processor time while nothing comes, and no descriptor once"],
        [BACKGROUND_OUTPUT, "is bounded: beyond the limit the oldest is given up"],
      ],
    },
    {
      says: "What certainly outlived its hook is told",
      tests: [[ENDS, "names who certainly is the hook's and outlived it"]],
    },
    {
      says: "A workload whose start hangs does not keep the agent",
      tests: [[STOP, "does not keep the agent: it leaves with"]],
    },
    {
      says: "A process id is never signalled after it can have been given again",
      tests: [
        [REUSED_ID, "whose id was given to another between the look and the signal"],
        [REUSED_ID, "a process is signalled by id and start time together"],
      ],
    },
    {
      says: "Abandoned cgroups are removed by the next agent, those in use are not",
      tests: [[CRASH, "removes empty cgroups of one that was killed without a launcher"]],
    },
  ],
  "The agent itself": [
    {
      says: "oom_score_adj and priority for itself, reset for children",
      tests: [
        [STANDING, "is among the last that the out-of-memory killer takes"],
        [STANDING, "comes first when it has work"],
        [STANDING, "hands neither down to an exec"],
        [STANDING, "hands neither down to the workload"],
        [MEMORY_CASES, "a command dies before the workload, and that before the agent"],
      ],
    },
    {
      says: "A full guest, a slow disk: launcher, agent and workload live, other calls are answered",
      tests: [
        [MEMORY_CASES, "launcher, agent and workload live, and afterwards all is as before"],
        ["vm/slow-disk.vm.ts", "other file calls, commands and Health come back before the first fsync"],
      ],
    },
    {
      says: "Not dumpable",
      tests: [
        [STANDING, "can neither be dumped nor looked into by an exec of another user"],
        [STANDING, "cannot be looked into by its own commands, and works"],
      ],
    },
    {
      says: "Children get no agent descriptor: pipes, terminals, the workload",
      tests: [
        [PIPES, "hands the child no descriptor but 0, 1 and 2"],
        ["agent/exec/terminal.test.ts", "hands the child no descriptor but 0, 1 and 2, also beside other terminals"],
        [STREAMS, "gets no descriptor of the agent's"],
      ],
    },
    {
      says: "Output, input and connection memory bounded in bytes",
      tests: [
        [END, "stops the command and costs the agent no memory; reading on, it gets every byte"],
        [HARD_CASES, "gets 64 MiB of input into a command that reads slowly"],
        ["agent/server/memory.test.ts", "stays bounded when clients do not read, and when handlers do not"],
      ],
    },
    {
      says: "The log loses no line to a flooding workload and never holds the agent up",
      tests: [
        [STANDARD_ERROR, "carries every line of the agent, late, when the workload has flooded it"],
        [STANDARD_ERROR, "while it is full and nobody reads it"],
        [STANDARD_ERROR, "stays blocking for the workload, as the other two streams do"],
      ],
    },
  ],
  Terminals: [
    {
      says: "Slow and paused readers lose nothing",
      tests: [
        [STREAMS, "to a reader that pauses two seconds"],
        [STREAMS, "loses nothing to a reader that takes a chunk now and then"],
      ],
    },
    {
      says: "No write after close",
      tests: [[STREAMS, "writes nothing after its end: input that it did not read lands nowhere"]],
    },
    {
      says: "A child that does not read costs no processor time; nor does a client that does not",
      tests: [
        [STREAMS, "that does not read what is sent to it costs no processor time"],
        [STREAMS, "that nobody reads from costs no processor time"],
      ],
    },
    {
      says: "tostop: neither in a command's terminal nor in the agent's own",
      tests: [
        [STREAMS, "stops a background writer without any work for the agent"],
        [STANDARD_ERROR, "may be a terminal that stops background writers"],
      ],
    },
  ],
  "Hard cases, through the real server": [
    {
      says: "sleep 1000 & echo hi",
      tests: [[PIPES, "is not delayed by a background child that holds the output open"]],
    },
    { says: "closes its stdout", tests: [[PIPES, "goes on after the command closed its output"]] },
    { says: "ignores SIGTERM", tests: [[END, "ends by SIGKILL when SIGTERM is ignored"]] },
    { says: "loop of forks on timeout", tests: [[CGROUPS, "loses to no fork loop"]] },
    {
      says: "exit during 10 MiB of pending output, reader pauses two seconds",
      tests: [[STREAMS, "loses nothing of 10 MiB that are pending when it exits"]],
    },
    {
      says: "64 MiB of input into a child that reads slowly",
      tests: [[HARD_CASES, "gets 64 MiB of input into a command that reads slowly"]],
    },
    {
      says: "a client killed in mid-stream",
      tests: [[HARD_CASES, "ends when its client is killed in mid-stream"]],
    },
    {
      says: "a real-time signal death",
      tests: [[PIPES, "reports a death by signal as 128 + n and as the signal, ordinary or real-time"]],
    },
    {
      says: "core dump flag",
      tests: [[HARD_CASES, "says that the command dumped core, and only when it did"]],
    },
    { says: "a stopped child", tests: [[END, "takes a stopped command too"]] },
    {
      says: "a user with 200 groups",
      tests: [[HARD_CASES, "runs as a user with 200 groups, with all of them"]],
    },
    {
      says: "/proc is not mounted",
      tests: [[HARD_CASES, "runs, times out and leaves nothing while /proc is not mounted"]],
    },
    {
      says: "no descriptors left, and recovery",
      tests: [
        [DESCRIPTORS, "refuses execs with RESOURCE_EXHAUSTED, keeps those that run, and recovers"],
        [DESCRIPTORS, "still kills a command's whole tree at its timeout, daemons too"],
      ],
    },
    { says: "soak", tests: [["agent/supervision/soak.test.ts", "500 mixed execs, 50 at once, lose no byte"]] },
  ],
};
