#ifndef LAUNCHER_SUPERVISE_H
#define LAUNCHER_SUPERVISE_H

#include <sys/types.h>

/*
 * Passes every signal on to the agent as one byte, its number, on `channel`, and reaps every process that is left to
 * the launcher, until the agent itself has ended. Returns the agent's wait status.
 */
int supervise(pid_t agent, int channel);

#endif
