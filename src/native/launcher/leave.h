#ifndef LAUNCHER_LEAVE_H
#define LAUNCHER_LEAVE_H

/*
 * Ends the launcher as the agent ended, given its wait status: with its exit code, or by its signal. PID 1 cannot die
 * by a signal of its own; it exits with 128 + signal.
 */
_Noreturn void leave_like(int status);

#endif
