#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include <sys/types.h>

/*
 * Starts the agent as a child in a process group of its own, the terminal's foreground group if the launcher's was:
 * what is typed then reaches the agent once, and not the launcher as well. All signals must be blocked; the agent
 * starts with none blocked, and with the default disposition of those that are not real-time ones.
 */
pid_t start_agent(char **command, char **environment);

#endif
