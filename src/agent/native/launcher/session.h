#ifndef LAUNCHER_SESSION_H
#define LAUNCHER_SESSION_H

#include <sys/types.h>

/* The session's cgroup, given by its open directory. With -1 (no cgroup) these functions do nothing. */

/* Thaws the session and its descendants' cgroups elsewhere: frozen processes handle no signal but SIGKILL. */
void thaw_session(int session);

/* Kills everything in it at once, so that a fork loop cannot escape. */
void kill_session(int session);

/* Removes it and the cgroups below, except those with processes. */
void remove_session(int session, pid_t agent);

#endif
