#ifndef LAUNCHER_FAILURE_H
#define LAUNCHER_FAILURE_H

/* Exit status if the agent could not be started: EX_OSERR of sysexits.h. */
#define LAUNCHER_FAILED 71

/* Prints what failed and errno's text, and exits with LAUNCHER_FAILED. Pass no secrets. */
_Noreturn void fail(const char *what);

/* The same with a reason other than errno. */
_Noreturn void fail_because(const char *what, const char *reason);

/* Writes to standard error unless that would block, since it may have no reader. Leaves all signals blocked. */
void say_without_waiting(const char *text);

#endif
