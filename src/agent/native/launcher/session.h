#ifndef LAUNCHER_SESSION_H
#define LAUNCHER_SESSION_H

#include <sys/types.h>

/* The cgroup of the session, by its open directory; -1: there is none, and all of these do nothing. */

/* Thaws the session, also its descendants' cgroups outside: frozen processes act on no signal but SIGKILL. */
void thaw_session(int session);

/* SIGKILL for everything in it at once: a fork loop cannot get away. */
void kill_session(int session);

/* Removes it with the cgroups in it. Where something lives in one, that stays. */
void remove_session(int session, pid_t agent);

#endif
