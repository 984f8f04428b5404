#ifndef LAUNCHER_REMAINS_H
#define LAUNCHER_REMAINS_H

/*
 * Ends the processes that a crashed agent left to the launcher: SIGTERM, up to ten seconds to comply, then SIGKILL
 * until none is left. As PID 1 that is every process there is; else it is the launcher's children, and theirs as they
 * become its own.
 */
void end_remains(void);

#endif
