#ifndef LAUNCHER_ENVIRONMENT_H
#define LAUNCHER_ENVIRONMENT_H

#include "bundle.h"

/*
 * Copies the whole environment into a sealed file in memory, byte for byte, each entry ended by a NUL. Returns the
 * file's descriptor, at its start. Then overwrites the original: nothing of it stays in this process's memory or in
 * /proc/<launcher>/environ.
 */
int move_environment(char **environment);

/*
 * The agent's environment, from the launcher alone: NODE_OPTIONS, LD_PRELOAD and so on are for the image's programs.
 * `container_score`: of protect_from_oom_killer.
 */
char **agent_environment(const struct bundle *bundle, int environment, int channel, int container_score);

#endif
