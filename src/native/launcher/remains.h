#ifndef LAUNCHER_REMAINS_H
#define LAUNCHER_REMAINS_H

#include <sys/types.h>

/*
 * Ends the processes that a crashed agent left to the launcher: SIGTERM, up to ten seconds to comply, then SIGKILL
 * until none is left. As PID 1 that is every process there is; else it is the launcher's children, and theirs as they
 * become its own, and whatever is in the agent's cgroups, which are then removed. `cgroups`: their folder, or -1.
 */
void end_remains(int cgroups, pid_t agent);

#endif
