#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process_table.h"
#include "values.h"

/* Since Linux 5.3, of the same number on both architectures; the C library of Debian 11 does not know them all. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

/*
 * kill(pid, signal): any number up to SIGRTMAX; process.kill refuses those above 31. Ids up to 1 are refused: they mean
 * this process's own group, every process, or init, and only a bug asks for them.
 */
napi_value agent_kill(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  pid_t pid = to_int(env, args[0]);
  return pid <= 1 ? from_int(env, -EINVAL) : from_result(env, kill(pid, to_int(env, args[1])));
}

/* killGroup(pgid, signal): the same for a whole process group. */
napi_value agent_kill_group(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  pid_t group = to_int(env, args[0]);
  return group <= 1 ? from_int(env, -EINVAL) : from_result(env, kill(-group, to_int(env, args[1])));
}

/* A descriptor of the process that has this id now, or a negative errno; -ENOSYS also where a filter forbids the call. */
static int open_process(pid_t pid) {
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  if (process >= 0) return process;
  return errno == EPERM ? -ENOSYS : -errno;
}

static bool started_at(pid_t pid, int32_t start) {
  char path[32];
  int32_t row[COLUMNS];
  snprintf(path, sizeof path, "/proc/%d", pid);
  return read_process_row(AT_FDCWD, path, row) && row[START_COLUMN] == start;
}

/*
 * signalProcess(pid, start, signal): the same for a process that is named by its id and start time. -ESRCH when it has
 * gone, even if another has its id now. The pidfd is opened before the start times are compared, so it cannot be
 * another's.
 */
napi_value agent_signal_process(napi_env env, napi_callback_info info) {
  napi_value args[3];
  get_arguments(env, info, 3, args);
  pid_t pid = to_int(env, args[0]);
  if (pid <= 1) return from_int(env, -EINVAL);
  int process = open_process(pid);
  if (process < 0) return from_int(env, process);
  long result = -ESRCH;
  if (started_at(pid, to_int(env, args[1]))) {
    result = syscall(SYS_pidfd_send_signal, process, to_int(env, args[2]), NULL, 0);
    if (result < 0) result = -errno;
  }
  close(process);
  return from_int(env, result);
}
