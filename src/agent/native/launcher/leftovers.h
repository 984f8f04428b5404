#ifndef LAUNCHER_LEFTOVERS_H
#define LAUNCHER_LEFTOVERS_H

#include <sys/types.h>

/*
 * Grace period for processes of a crashed agent (tests compile a shorter one), and for those left after an agent that
 * had already ended its commands.
 */
#ifndef CRASH_GRACE_MS
#define CRASH_GRACE_MS 10000
#endif
#define ORPHAN_GRACE_MS 2000

/*
 * Ends the processes that the agent left behind: SIGTERM, then SIGKILL after `grace_ms` until none is left. As PID 1
 * the launcher ends every process. Otherwise it ends its children, including adopted ones, and the processes in the
 * session's cgroup, which it thaws first and removes at the end. `session` is its open directory, or -1.
 */
void end_leftovers(int session, pid_t agent, int grace_ms);

#endif
