#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Starts the agent in a process group of its own. If the launcher's group is in the foreground of the terminal, the
 * agent's group takes its place, so that Ctrl-C reaches only the agent. The caller must have blocked all signals. The
 * agent starts with no signal blocked, and with real-time signals ignored.
 */
pid_t start_agent(char **command, char **environment);

/*
 * Forwards every signal to the agent as one byte, its number, on `channel`, and reaps all children, until the agent
 * ends. Returns the agent's wait status.
 */
int supervise(pid_t agent, int channel);

/* What the agent sent over its channel before it ended. */
struct exit_report {
  /* Whether the agent announced its exit. If not, it crashed, whatever its exit status is. */
  bool announced;
  /* Open directory of the session's cgroup; -1 if there is none. */
  int session;
};

struct exit_report read_exit_report(int channel);

/*
 * Exits as the agent did, with its exit code or signal. PID 1 cannot die from a signal, so it exits with 128 + signal.
 */
_Noreturn void exit_as(int status);

#endif
