import type { Requirement } from "./coverage.ts";

/** What supervision must do (docs/agent/reliability.md), and the tests that show it: file, and part of the title. */
export const PROMISES: Readonly<Record<string, readonly Requirement[]>> = {
  Launcher: [
    {
      says: "Environment by sealed memfd; nothing secret in environ or command line of the agent",
      tests: [
        ["agent/native/launcher.test.ts", "hands the environment over byte for byte, whatever is in it"],
        ["agent/native/launcher.test.ts", "leaves no secret in environ or command line of itself and the agent"],
      ],
    },
    {
      says: "The image's variables and files never act on the agent",
      tests: [
        [
          "agent/native/launcher.test.ts",
          "starts the agent with nothing of the image's environment, which would break it",
        ],
        ["system/traps.test.ts", "has variables each of which breaks a plain Node"],
      ],
    },
    {
      says: "All signals forwarded, as PID 1, as the child of an init and of a shell",
      tests: [
        [
          "agent/native/launcher.test.ts",
          "passes on all 62 signals that can be caught, and each of several real-time ones",
        ],
        ["agent/native/launcher.test.ts", "keeps signals that come faster than the agent takes them"],
      ],
    },
    {
      says: "Orphans reaped and statuses mirrored in the same three settings",
      tests: [
        ["agent/native/launcher.test.ts", "reaps 200 orphans and leaves no zombie"],
        ["agent/native/launcher.test.ts", "mirrors exit codes and deaths by a signal"],
        ["agent/native/launcher.test.ts", "ends by the agent's own signal where it is not PID 1"],
      ],
    },
    {
      says: "A crash of the agent leaves no process and no cgroup, even of a loop of forks",
      tests: [
        ["agent/supervision/crash.test.ts", "leaves nothing: no process of a workload and a command that run away"],
        ["agent/native/launcher.test.ts", "asks what it left to end and exits with the agent's status"],
        [
          "agent/native/launcher.test.ts",
          "kills what ignores SIGTERM after a crash, stopped processes and new sessions too",
        ],
        ["agent/native/launcher.test.ts", "asks the children of what it left too, each once, and waits for them"],
        [
          "agent/native/launcher.test.ts",
          "leaves with the status of an agent that was killed although its standard error is full",
        ],
      ],
    },
    {
      says: "The launcher for arm64 does the same, in an emulated machine",
      tests: [["vm/cases/sandbox-cases.ts", "leaves with the workload's status when init forwards the stop"]],
    },
  ],
  Trees: [
    {
      says: "A cgroup for each exec and hook, also where cgroup2 is not mounted; killed whole",
      tests: [
        ["agent/supervision/cgroups.test.ts", "with the daemon that forked twice and left the session"],
        ["agent/supervision/cgroups.test.ts", "is so too where cgroup2 is not mounted, and sees no mount of it"],
        ["agent/supervision/cgroups.test.ts", "is killed with its daemons when it is a hook at its timeout"],
      ],
    },
    {
      says: "Without cgroups a walk of the descendants that wins against a loop of forks",
      tests: [
        ["agent/supervision/cgroups.test.ts", "says so, and kills what a walk of /proc finds"],
        [
          "agent/platform/processes/tree.test.ts",
          "a tree that forks faster than it is killed is killed to the last process",
        ],
      ],
    },
    {
      says: "oom_killed from memory.events",
      tests: [["vm/cases/sandbox-cases.ts", "a command over the memory limit of its cgroup ends with oom_killed"]],
    },
    {
      says: "Timeout, hook timeout, stop and shutdown end the whole tree, which has the whole grace",
      tests: [
        ["agent/session/ends.test.ts", "an exec's at its timeout"],
        ["agent/session/ends.test.ts", "an exec's when the agent leaves"],
        ["agent/session/ends.test.ts", "a hook's at its timeout"],
        ["agent/session/ends.test.ts", "ready_cmd's at its timeout"],
        ["agent/session/ends.test.ts", "the workload's at a stop"],
        ["agent/session/ends.test.ts", "what the workload leaves when it ends by itself"],
        ["agent/exec/end.test.ts", "leaves nothing of the tree alive, children in sessions of their own included"],
        ["agent/hooks/run.test.ts", "is dead with its whole tree before the answer comes"],
        ["agent/workload/workload.test.ts", "on SIGTERM gives the workload its grace, and refuses new calls meanwhile"],
        ["agent/workload/stop.test.ts", "kills a workload at the end of its grace"],
        [
          "agent/workload/stop.test.ts",
          "takes descendants of the workload along that left its session and ignore SIGTERM",
        ],
        ["agent/workload/stop.test.ts", "gives daemons that forked twice their grace too"],
        ["agent/workload/stop.test.ts", "leaves none of them at the end of the grace, nor what commands left"],
        [
          "agent/supervision/cgroups.test.ts",
          "takes its execs' daemons along that are still in a running command's tree",
        ],
      ],
    },
    {
      says: "A lost client ends the command's session, and nobody beyond it",
      tests: [
        ["agent/exec/end.test.ts", "by cancelling: gets SIGHUP and ends"],
        ["agent/exec/end.test.ts", "leaves a daemon alive that left the session on purpose"],
        ["agent/session/ends.test.ts", "takes background jobs in groups of their own along"],
        ["agent/session/ends.test.ts", "gives each process of the session its grace"],
        ["agent/session/ends.test.ts", "kills who ignores it and is still in the session, and nobody else"],
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
        ["agent/session/background-output.test.ts", "an exec"],
        ["agent/session/background-output.test.ts", "a hook"],
        ["agent/session/background-output.test.ts", "ready_cmd"],
        [
          "agent/session/background-output.test.ts",
          "costs no processor time while nothing comes, and no descriptor once",
        ],
        ["agent/session/background-output.test.ts", "is bounded: beyond the limit the oldest is given up"],
      ],
    },
    {
      says: "What certainly outlived its hook is told",
      tests: [["agent/session/ends.test.ts", "names who certainly is the hook's and outlived it"]],
    },
    {
      says: "A workload whose start hangs does not keep the agent",
      tests: [["agent/workload/stop.test.ts", "does not keep the agent: it leaves with"]],
    },
    {
      says: "A process id is never signalled after it can have been given again",
      tests: [
        ["agent/platform/processes/reused-id.test.ts", "whose id was given to another between the look and the signal"],
        ["agent/platform/processes/reused-id.test.ts", "a process is signalled by id and start time together"],
      ],
    },
    {
      says: "Abandoned cgroups are removed by the next agent, those in use are not",
      tests: [["agent/supervision/crash.test.ts", "removes empty cgroups of one that was killed without a launcher"]],
    },
  ],
  "The agent itself": [
    {
      says: "oom_score_adj and priority for itself, reset for children",
      tests: [
        ["agent/supervision/standing.test.ts", "is among the last that the out-of-memory killer takes"],
        ["agent/supervision/standing.test.ts", "comes first when it has work"],
        ["agent/supervision/standing.test.ts", "hands neither down to an exec"],
        ["agent/supervision/standing.test.ts", "hands neither down to the workload"],
        ["vm/cases/memory-cases.ts", "a command dies before the workload, and that before the agent"],
      ],
    },
    {
      says: "A full guest, a slow disk: launcher, agent and workload live, other calls are answered",
      tests: [
        ["vm/cases/memory-cases.ts", "launcher, agent and workload live, and afterwards all is as before"],
        ["vm/slow-disk.vm.ts", "other file calls, commands and Health come back before the first fsync"],
      ],
    },
    {
      says: "Not dumpable",
      tests: [
        ["agent/supervision/standing.test.ts", "can neither be dumped nor looked into by an exec of another user"],
        ["agent/supervision/standing.test.ts", "cannot be looked into by its own commands, and works"],
      ],
    },
    {
      says: "Children get no agent descriptor: pipes, terminals, the workload",
      tests: [
        ["agent/exec/pipes.test.ts", "hands the child no descriptor but 0, 1 and 2"],
        ["agent/exec/terminal.test.ts", "hands the child no descriptor but 0, 1 and 2, also beside other terminals"],
        ["agent/supervision/streams.test.ts", "gets no descriptor of the agent's"],
      ],
    },
    {
      says: "Output, input and connection memory bounded in bytes",
      tests: [
        ["agent/exec/end.test.ts", "stops the command and costs the agent no memory; reading on, it gets every byte"],
        ["agent/exec/end.test.ts", "holds the client back and costs the agent no memory"],
        ["agent/server/memory.test.ts", "stays bounded when clients do not read, and when handlers do not"],
      ],
    },
    {
      says: "The log loses no line to a flooding workload and never holds the agent up",
      tests: [
        [
          "agent/supervision/standard-error.test.ts",
          "carries every line of the agent, late, when the workload has flooded it",
        ],
        ["agent/supervision/standard-error.test.ts", "while it is full and nobody reads it"],
        ["agent/supervision/standard-error.test.ts", "stays blocking for the workload, as the other two streams do"],
      ],
    },
  ],
  Terminals: [
    {
      says: "Slow and paused readers lose nothing",
      tests: [
        ["agent/supervision/streams.test.ts", "to a reader that pauses two seconds"],
        ["agent/supervision/streams.test.ts", "loses nothing to a reader that takes a chunk now and then"],
      ],
    },
    {
      says: "No write after close",
      tests: [
        ["agent/supervision/streams.test.ts", "writes nothing after its end: input that it did not read lands nowhere"],
      ],
    },
    {
      says: "A child that does not read costs no processor time; nor does a client that does not",
      tests: [
        ["agent/supervision/streams.test.ts", "that does not read what is sent to it costs no processor time"],
        ["agent/supervision/streams.test.ts", "that nobody reads from costs no processor time"],
      ],
    },
    {
      says: "tostop: neither in a command's terminal nor in the agent's own",
      tests: [
        ["agent/supervision/streams.test.ts", "stops a background writer without any work for the agent"],
        ["agent/supervision/standard-error.test.ts", "may be a terminal that stops background writers"],
      ],
    },
  ],
  "Hard cases, through the real server": [
    {
      says: "sleep 1000 & echo hi",
      tests: [["agent/exec/pipes.test.ts", "is not delayed by a background child that holds the output open"]],
    },
    { says: "closes its stdout", tests: [["agent/exec/pipes.test.ts", "goes on after the command closed its output"]] },
    { says: "ignores SIGTERM", tests: [["agent/exec/end.test.ts", "ends by SIGKILL when SIGTERM is ignored"]] },
    { says: "loop of forks on timeout", tests: [["agent/supervision/cgroups.test.ts", "loses to no fork loop"]] },
    {
      says: "exit during 10 MiB of pending output, reader pauses two seconds",
      tests: [["agent/supervision/streams.test.ts", "loses nothing of 10 MiB that are pending when it exits"]],
    },
    {
      says: "64 MiB of input into a child that reads slowly",
      tests: [["agent/supervision/hard-cases.test.ts", "gets 64 MiB of input into a command that reads slowly"]],
    },
    {
      says: "a client killed in mid-stream",
      tests: [["agent/supervision/hard-cases.test.ts", "ends when its client is killed in mid-stream"]],
    },
    {
      says: "a real-time signal death",
      tests: [
        ["agent/exec/pipes.test.ts", "reports a death by signal as 128 + n and as the signal, ordinary or real-time"],
      ],
    },
    {
      says: "core dump flag",
      tests: [["agent/supervision/hard-cases.test.ts", "says that the command dumped core, and only when it did"]],
    },
    { says: "a stopped child", tests: [["agent/exec/end.test.ts", "takes a stopped command too"]] },
    {
      says: "a user with 200 groups",
      tests: [["agent/supervision/hard-cases.test.ts", "runs as a user with 200 groups, with all of them"]],
    },
    {
      says: "/proc is not mounted",
      tests: [
        ["agent/supervision/hard-cases.test.ts", "runs, times out and leaves nothing while /proc is not mounted"],
      ],
    },
    {
      says: "no descriptors left, and recovery",
      tests: [
        [
          "agent/supervision/descriptors.test.ts",
          "refuses execs with RESOURCE_EXHAUSTED, keeps those that run, and recovers",
        ],
        ["agent/supervision/descriptors.test.ts", "still kills a command's whole tree at its timeout, daemons too"],
      ],
    },
    { says: "soak", tests: [["agent/supervision/soak.test.ts", "500 mixed execs, 50 at once, lose no byte"]] },
  ],
};
