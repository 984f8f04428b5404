#ifndef LAUNCHER_FAILURE_H
#define LAUNCHER_FAILURE_H

/* Exit status when the agent could not be started at all: EX_OSERR of sysexits.h. */
#define LAUNCHER_FAILED 71

/* Says what could not be done, with errno's reason, and exits with LAUNCHER_FAILED. Pass nothing secret. */
_Noreturn void fail(const char *what);

/* The same where errno does not tell the reason. */
_Noreturn void fail_because(const char *what, const char *reason);

/* Writes to standard error unless that would block: perhaps nobody reads it any more. Blocks all signals. */
void say_without_waiting(const char *text);

#endif
