#ifndef LAUNCHER_SESSION_H
#define LAUNCHER_SESSION_H

#include <sys/types.h>

/* The session's cgroup, given by its open directory. With -1 (no cgroup) these functions do nothing. */

/*
 * Thaws the session's cgroup, and other cgroups that its descendants have moved to. Frozen processes handle no signal
 * but SIGKILL.
 */
void thaw_session(int session);

/* Kills all processes in the cgroup at once, so that processes that fork in a loop cannot escape. */
void kill_session(int session);

/* Removes the cgroup and the cgroups below it, except for cgroups with processes. */
void remove_session(int session, pid_t agent);

#endif
