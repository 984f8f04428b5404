#ifndef LAUNCHER_OOM_SCORE_H
#define LAUNCHER_OOM_SCORE_H

/* Result of protect_from_oom_killer if it did not change the score. This value is above 1000, the largest score. */
#define NO_OOM_SCORE 1001

/*
 * Makes this process and its future children the last victims of the OOM killer. Returns the container's original
 * score, which the agent sets for its children. Returns NO_OOM_SCORE if that score is lower already, or if procfs or
 * CAP_SYS_RESOURCE is missing.
 */
int protect_from_oom_killer(void);

#endif
