#ifndef LAUNCHER_LEFTOVERS_H
#define LAUNCHER_LEFTOVERS_H

#include <sys/types.h>

/*
 * Grace periods between SIGTERM and SIGKILL: for the processes of a crashed agent (tests compile a shorter one), and
 * for processes that are left although the agent has ended its commands.
 */
#ifndef CRASH_GRACE_MS
#define CRASH_GRACE_MS 10000
#endif
#define ORPHAN_GRACE_MS 2000

/*
 * Ends the processes that the agent left behind: sends SIGTERM, and after `grace_ms` SIGKILL. As PID 1 the launcher
 * ends every process. Otherwise it ends its children, including adopted ones, and the processes in the cgroup `session`
 * (-1: none). It thaws this cgroup first and removes it at the end.
 */
void end_leftovers(int session, pid_t agent, int grace_ms);

#endif
