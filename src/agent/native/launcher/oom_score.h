#ifndef LAUNCHER_OOM_SCORE_H
#define LAUNCHER_OOM_SCORE_H

/* The score was not changed. */
#define NO_OOM_SCORE 1001

/*
 * Makes this process and its future children the last victims of the OOM killer. Returns the container's original
 * score, which the agent uses for its children, or NO_OOM_SCORE if it was lower already, there is no procfs, or
 * CAP_SYS_RESOURCE is missing.
 */
int protect_from_oom_killer(void);

#endif
