#ifndef LAUNCHER_BUNDLE_H
#define LAUNCHER_BUNDLE_H

#include <limits.h>

/* The files that are shipped with the launcher, in the directory that holds it. */
struct bundle {
  char directory[PATH_MAX];
  char loader[PATH_MAX];
  char libraries[PATH_MAX];
  char program[PATH_MAX];
  /* Empty where the loader cannot load it with the program. */
  char addon[PATH_MAX];
  char openssl_config[PATH_MAX];
};

/* Finds the directory that this very executable lies in, or fails. Works without /proc. */
void find_bundle(struct bundle *bundle);

/*
 * The agent's command line: the bundled dynamic loader runs the bundled program with the bundled libraries, so nothing
 * of the image is needed or used. The addon is loaded with them: it sets up the process before Node begins
 * (internals/mutex_table.c).
 * `argv` is the launcher's own; its arguments become the agent's.
 */
char **agent_command(const struct bundle *bundle, int argc, char **argv);

/*
 * Asks the kernel to read what a start and the first calls need of the bundle's files, all at once and nothing else.
 * The list beside them (agent.pages) says what that is. Does not wait for the disk. Without a list, or where the kernel
 * does not do it, everything is read when it is needed, and much beside it.
 */
void read_ahead(const struct bundle *bundle);

#endif
