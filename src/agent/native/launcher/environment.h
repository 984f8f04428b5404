#ifndef LAUNCHER_ENVIRONMENT_H
#define LAUNCHER_ENVIRONMENT_H

#include "bundle.h"

/*
 * Moves the environment to a sealed memfd and returns its descriptor, at offset 0. Each entry is raw bytes and a NUL.
 * The original is overwritten, so that nothing of it stays in this process's memory or in /proc/<launcher>/environ.
 */
int move_environment(char **environment);

/*
 * The agent's environment. It does not include the image's variables, such as NODE_OPTIONS and LD_PRELOAD, which are
 * for the image's programs. `container_score` is the result of protect_from_oom_killer.
 */
char **agent_environment(const struct bundle *bundle, int environment, int channel, int container_score);

#endif
