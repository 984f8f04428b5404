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
 * The agent's command line. It starts the bundled dynamic loader, which runs the bundled program with the bundled
 * libraries, so that nothing of the image is used. The loader also preloads the addon, because the addon must set up
 * the process before Node starts (internals/mutex_table.c).
 */
char **agent_command(const struct bundle *bundle, int argc, char **argv);

/*
 * Makes the kernel read the pages that the file agent.pages lists, because the agent needs these pages for its start
 * and its first calls. Does not wait for them. Without the list or without readahead(2), the kernel reads each page at
 * its first access.
 */
void read_ahead(const struct bundle *bundle);

#endif
