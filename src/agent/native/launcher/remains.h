#ifndef LAUNCHER_REMAINS_H
#define LAUNCHER_REMAINS_H

#include <sys/types.h>

/* Grace for what a crashed agent left behind, and for what is left after an agent that ended its own commands. */
#define REMAINS_GRACE_MS 10000
#define LEFT_GRACE_MS 2000

/*
 * Ends the processes that an agent left to the launcher: SIGTERM, up to `grace_ms` to comply, then SIGKILL until none
 * is left. As PID 1 that is every process. Else it is the launcher's children, theirs as they become its own, and what
 * is in the session's cgroup, which is thawed first and then removed. `session`: its folder, or -1.
 */
void end_remains(int session, pid_t agent, int grace_ms);

#endif
