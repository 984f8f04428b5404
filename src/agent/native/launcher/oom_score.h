#ifndef LAUNCHER_OOM_SCORE_H
#define LAUNCHER_OOM_SCORE_H

/* Result of protect_from_oom_killer if it did not change the score. This value is above 1000, the largest score. */
#define NO_OOM_SCORE 1001

/*
 * Makes this process the last victim of the OOM killer, and also the agent, which inherits the score. Returns the
 * container's original score, which the agent sets for its own children. Returns NO_OOM_SCORE and changes nothing if
 * the original score is as low already, or if procfs or CAP_SYS_RESOURCE is missing.
 */
int protect_from_oom_killer(void);

#endif
