#ifndef LAUNCHER_FAILURE_H
#define LAUNCHER_FAILURE_H

/* Exit status if the agent could not be started: EX_OSERR of sysexits.h. */
#define LAUNCHER_FAILED 71

/* Prints what failed and errno's text, and exits with LAUNCHER_FAILED. Pass no secrets. */
_Noreturn void fail(const char *what);

/* Like `fail`, with a reason in place of errno's text. */
_Noreturn void fail_because(const char *what, const char *reason);

/*
 * Writes to standard error. Gives up if the stream is full, which happens if no process reads it. Leaves all signals
 * blocked.
 */
void say_without_waiting(const char *text);

#endif
