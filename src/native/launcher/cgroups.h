#ifndef LAUNCHER_CGROUPS_H
#define LAUNCHER_CGROUPS_H

#include <sys/types.h>

/* The agent's cgroups: folders of the open folder `base` with the agent's process id in their names. */

/* SIGKILL for everything in them at once; a fork loop cannot get away. Nothing where `base` is -1. */
void kill_cgroups(int base, pid_t agent);

/* Removes those in which nothing lives. */
void remove_cgroups(int base, pid_t agent);

#endif
