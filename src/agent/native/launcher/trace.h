#ifndef LAUNCHER_TRACE_H
#define LAUNCHER_TRACE_H

#include <signal.h>
#include <sys/types.h>

/*
 * With SVC_LOG_LEVEL=debug the launcher logs signals and reaped processes in the format of the agent's log. Otherwise
 * these functions do nothing.
 */

/* Reads SVC_LOG_LEVEL. Call it before move_environment, which erases the environment. */
void read_trace_level(void);

/*
 * Logs a signal that is forwarded to the agent. A SIGALRM that arrives during the write is lost, because the write's
 * timeout uses SIGALRM (failure.c).
 */
void trace_signal(const siginfo_t *info);

/* Logs a reaped process: the agent or an orphan. */
void trace_reaped(pid_t process, int status);

#endif
