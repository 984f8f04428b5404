#ifndef LAUNCHER_OOM_SCORE_H
#define LAUNCHER_OOM_SCORE_H

/* No score was changed. */
#define NO_OOM_SCORE 1001

/*
 * Makes this process, and all that it starts from now on, the last that the out-of-memory killer takes. Returns the
 * score that the container had, which is for the agent's children. NO_OOM_SCORE: it had a lower one, there is no /proc,
 * or the privilege is missing (CAP_SYS_RESOURCE).
 */
int protect_from_oom_killer(void);

#endif
