#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include <sys/types.h>

/*
 * Starts the agent as a child in a process group of its own, which becomes the terminal's foreground group if the
 * launcher's was: a Ctrl-C then reaches the agent once, and not the launcher too. Call it with all signals blocked; the
 * agent starts with none blocked, and with default dispositions except for the real-time signals.
 */
pid_t start_agent(char **command, char **environment);

#endif
