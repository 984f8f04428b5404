#ifndef LAUNCHER_LEFTOVERS_H
#define LAUNCHER_LEFTOVERS_H

#include <sys/types.h>

/*
 * Grace periods between SIGTERM and SIGKILL.
 * CRASH_GRACE_MS: for processes that a crashed agent has left. Tests compile a shorter period.
 * ORPHAN_GRACE_MS: for processes that are left although the agent has ended its commands.
 */
#ifndef CRASH_GRACE_MS
#define CRASH_GRACE_MS 10000
#endif
#define ORPHAN_GRACE_MS 2000

/*
 * Ends the processes that the agent left behind. Thaws the cgroup `session` (-1: none), sends SIGTERM, sends SIGKILL
 * after `grace_ms`, and finally removes the cgroup. As PID 1, the launcher signals all processes. Otherwise it signals
 * its children, including adopted ones. It also sends SIGKILL to all processes in the cgroup.
 */
void end_leftovers(int session, pid_t agent, int grace_ms);

#endif
