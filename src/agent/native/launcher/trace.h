#ifndef LAUNCHER_TRACE_H
#define LAUNCHER_TRACE_H

#include <signal.h>
#include <sys/types.h>

/*
 * Under SVC_LOG_LEVEL=debug the launcher says what it does with signals and ended processes, in lines like those of the
 * agent's log. Otherwise these do nothing.
 */

/* Reads the level. Call it while the environment is there. */
void read_trace_level(void);

/* A signal is passed on to the agent. A SIGALRM that comes while the line is written is lost. */
void trace_signal(const siginfo_t *info);

/* A process was reaped: the agent, or one that was left to the launcher. */
void trace_reaped(pid_t process, int status);

#endif
