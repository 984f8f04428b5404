#ifndef LAUNCHER_SESSION_H
#define LAUNCHER_SESSION_H

#include <sys/types.h>

/*
 * `session` is a descriptor of the directory of the session's cgroup. If it is -1 (no cgroup), these functions do
 * nothing.
 */

/*
 * Thaws the session's cgroup, and other cgroups to which descendants of the launcher have moved. This is necessary
 * because a frozen process handles no signal except SIGKILL.
 */
void thaw_session(int session);

/* Kills all processes in the cgroup at once, so that processes that fork in a loop cannot escape. */
void kill_session(int session);

/* Removes the cgroup and the cgroups below it, except for cgroups with processes. */
void remove_session(int session, pid_t agent);

#endif
