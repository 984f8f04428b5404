#ifndef LAUNCHER_BUNDLE_H
#define LAUNCHER_BUNDLE_H

#include <limits.h>

/* The files of the bundle, all in the directory of the launcher. */
struct bundle {
  char directory[PATH_MAX];
  char loader[PATH_MAX];
  char libraries[PATH_MAX];
  char program[PATH_MAX];
  /* Path of the addon; empty if the loader cannot preload it. */
  char addon[PATH_MAX];
  char openssl_config[PATH_MAX];
};

/* Finds the directory of this executable, or exits with an error. Works without /proc. */
void find_bundle(struct bundle *bundle);

/*
 * The agent's command line: the bundled dynamic loader runs the bundled program with the bundled libraries, so that
 * nothing of the image is used. The addon is preloaded, because it sets up the process before Node starts
 * (internals/mutex_table.c). `argv` is the launcher's own; its arguments are passed to the agent.
 */
char **agent_command(const struct bundle *bundle, int argc, char **argv);

/*
 * Asks the kernel to read the parts of the bundle's files that the start and the first calls need, and does not wait
 * for this. The file agent.pages lists these parts. Without the list, or if the kernel does not support such requests,
 * pages are read on demand with the usual read-ahead.
 */
void read_ahead(const struct bundle *bundle);

#endif
