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
 * The agent's command line. The bundled dynamic loader runs the bundled program and libraries, so that nothing of the
 * image is used. It preloads the addon, which sets up the process before Node starts (internals/mutex_table.c).
 */
char **agent_command(const struct bundle *bundle, int argc, char **argv);

/*
 * Starts read-ahead of the parts of the bundle that agent.pages lists, and returns at once. The start and the first
 * calls need these parts. Without the list or kernel support, pages are read on demand.
 */
void read_ahead(const struct bundle *bundle);

#endif
