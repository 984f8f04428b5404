#ifndef LAUNCHER_REMAINS_H
#define LAUNCHER_REMAINS_H

#include <sys/types.h>

/*
 * Grace for processes that a crashed agent left (tests compile a shorter one), and for those left after an agent that
 * ended its own commands.
 */
#ifndef REMAINS_GRACE_MS
#define REMAINS_GRACE_MS 10000
#endif
#define LEFT_GRACE_MS 2000

/*
 * Ends the processes that an agent left to the launcher: SIGTERM, up to `grace_ms` to comply, then SIGKILL until none
 * is left. As PID 1 the launcher ends every process. Else it ends its children, their children once they become its
 * own, and the processes in the session's cgroup, which it thaws first and then removes. `session`: its directory, or
 * -1.
 */
void end_leftovers(int session, pid_t agent, int grace_ms);

#endif
