#ifndef LAUNCHER_OOM_SCORE_H
#define LAUNCHER_OOM_SCORE_H

/* Result of protect_from_oom_killer if it did not change the score. This value is above 1000, the largest score. */
#define NO_OOM_SCORE 1001

/*
 * Lowers the OOM score of this process, so that the OOM killer kills it last. The agent inherits the lower score.
 * Returns the container's original score, which the agent gives to its own children. Changes nothing and returns
 * NO_OOM_SCORE in two cases: the original score is low enough already, or procfs or CAP_SYS_RESOURCE is missing.
 */
int protect_from_oom_killer(void);

#endif
