#ifndef LAUNCHER_LEFTOVERS_H
#define LAUNCHER_LEFTOVERS_H

#include <sys/types.h>

/*
 * Grace periods between SIGTERM and SIGKILL, for processes that the agent has left.
 * CRASH_GRACE_MS: after a crash of the agent. Tests compile the launcher with a shorter period.
 * ORPHAN_GRACE_MS: after an announced exit of the agent, which has then ended its own commands.
 */
#ifndef CRASH_GRACE_MS
#define CRASH_GRACE_MS 10000
#endif
#define ORPHAN_GRACE_MS 2000

/*
 * Ends the processes that the agent left behind, in this order: thaws the cgroup `session` (-1: none), sends SIGTERM,
 * waits up to `grace_ms`, sends SIGKILL, and removes the cgroup. As PID 1, the launcher sends both signals to all
 * processes. Otherwise, it sends them to its children, including adopted ones. In both cases, SIGKILL also goes to all
 * processes in the cgroup.
 */
void end_leftovers(int session, pid_t agent, int grace_ms);

#endif
