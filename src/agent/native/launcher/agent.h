#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Starts the agent as a child in a process group of its own. That becomes the terminal's foreground group if the
 * launcher's was, so that a Ctrl-C reaches the agent once, and not the launcher too. Call it with all signals blocked;
 * the agent starts with none blocked, and with default dispositions except for the real-time signals.
 */
pid_t start_agent(char **command, char **environment);

/*
 * Until the agent has ended, passes every signal on to it as one byte, its number, on `channel`. Meanwhile reaps every
 * process that is left to the launcher. Returns the agent's wait status.
 */
int supervise(pid_t agent, int channel);

/* What the agent wrote over its channel by the time it had ended. */
struct exit_report {
  /* The agent left on purpose. If false it crashed, whatever its status. */
  bool announced;
  /* The directory of the session's cgroup; -1: there is none. */
  int session;
};

struct exit_report read_exit_report(int channel);

/* Ends the launcher as the agent ended: with its exit code, or its signal, which as PID 1 becomes 128 + signal. */
_Noreturn void exit_as(int status);

#endif
