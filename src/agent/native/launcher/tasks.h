#ifndef LAUNCHER_TASKS_H
#define LAUNCHER_TASKS_H

/* Processes and threads of an agent and its first command (both count as tasks in pids.max and RLIMIT_NPROC). */
#define TASKS_NEEDED 30

/* How many tasks, at most `wanted`, can be started now. Starts and ends as many: only for an agent that has failed. */
int tasks_available(int wanted);

#endif
