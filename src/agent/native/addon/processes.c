/*
 * Functions for the agent's children and for other processes in /proc. The pid of a child is not reused before the
 * agent reaps the child.
 */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "values.h"

/* Numbers of system calls, the same on both architectures. The C library of Debian 11 does not define all of them. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

/*
 * Waits for one particular child. Waiting for any child (-1) could take the exit status of a child that Node's
 * child_process has started.
 */
static int wait_for(pid_t pid, siginfo_t *info, int flags) {
  int result;
  memset(info, 0, sizeof *info);
  do
    result = waitid(P_PID, (id_t)pid, info, WEXITED | WNOHANG | flags);
  while (result < 0 && errno == EINTR);
  return result;
}

long agent_peek_end(pid_t pid) {
  siginfo_t end;
  if (wait_for(pid, &end, WNOWAIT) < 0) return -1;
  return end.si_pid == 0 ? 0 : end.si_code * 256 + end.si_status;
}

long agent_reap(pid_t pid) {
  siginfo_t end;
  return wait_for(pid, &end, 0);
}

/* A pid up to 1 would address the agent's process group, every process, or init, so it can only be a mistake. */
long agent_kill(pid_t pid, int signal) { return pid <= 1 ? fail_with(EINVAL) : kill(pid, signal); }

long agent_kill_group(pid_t group, int signal) { return group <= 1 ? fail_with(EINVAL) : kill(-group, signal); }

/* Pid 0 is rejected, because for prlimit(2) it means this process. */
long agent_open_files_limit_of(pid_t pid) {
  struct rlimit limit;
  if (pid <= 0) return fail_with(EINVAL);
  if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0) return -1;
  return limit.rlim_cur > INT32_MAX ? INT32_MAX : (long)limit.rlim_cur;
}

/* Columns of a row of processRows. START is the start time in clock ticks, modulo 2^31. */
enum { PID, PARENT, GROUP, SESSION, STATE, START, COLUMNS };

/*
 * Reads the row of a process. Returns false if the process does not exist, or if descriptors or memory are exhausted;
 * is_shortage(errno) tells these two cases apart.
 */
static bool read_row(pid_t pid, int32_t *row) {
  char path[32], text[1024];
  char state;
  int threads;
  unsigned long long start;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  errno = 0;
  if (read_text(AT_FDCWD, path, text, sizeof text) <= 0) return false;
  /* The name, which is in parentheses, may contain spaces and parentheses (proc(5)). */
  const char *rest = strrchr(text, ')');
  /* Fields 3 to 6, 20 and 22 of /proc/PID/stat. */
  const char *format = " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu";
  if (rest == NULL || sscanf(rest + 1, format, &state, &row[PARENT], &row[GROUP], &row[SESSION], &threads, &start) != 6)
    return false;
  /*
   * The kernel also shows the state Z if only the main thread has ended. The process must not count as a zombie while
   * other threads run.
   */
  if (state == 'Z' && threads > 1) state = 'S';
  row[PID] = pid;
  row[STATE] = state;
  row[START] = (int32_t)(start & INT32_MAX);
  return true;
}

static bool started_at(pid_t pid, int32_t start) {
  int32_t row[COLUMNS];
  return read_row(pid, row) && row[START] == start;
}

/*
 * Opens the pidfd first, and compares the start time afterwards. In this order, the pidfd cannot refer to a later
 * process with the same pid.
 */
long agent_signal_process(pid_t pid, int start, int signal) {
  if (pid <= 1) return fail_with(EINVAL);
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  /* EPERM: a seccomp filter forbids the call. */
  if (process < 0) return errno == EPERM ? fail_with(ENOSYS) : -1;
  long result = started_at(pid, start) ? syscall(SYS_pidfd_send_signal, process, signal, NULL, 0) : fail_with(ESRCH);
  close_keep_errno(process);
  return result;
}

/* Copies the cells to a new Int32Array and frees them. */
static napi_value to_table(napi_env env, int32_t *cells, size_t count) {
  void *bytes = NULL;
  napi_value buffer = NULL, table = NULL;
  napi_create_arraybuffer(env, count * sizeof *cells, &bytes, &buffer);
  if (bytes != NULL && cells != NULL) memcpy(bytes, cells, count * sizeof *cells);
  free(cells);
  napi_create_typedarray(env, napi_int32_array, count, buffer, 0, &table);
  return table;
}

/*
 * Whether the error means that descriptors or memory are exhausted. A process that cannot be read for this reason must
 * not count as ended.
 */
static bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

/* Reads the rows synchronously, which takes some 10 us per process. */
napi_value agent_process_rows(napi_env env, napi_callback_info info) {
  napi_value argument;
  void *pids = NULL;
  size_t length = 0, count = 0;
  get_arguments(env, info, 1, &argument);
  napi_get_typedarray_info(env, argument, NULL, &length, &pids, NULL, NULL);
  int32_t *rows = calloc(length + 1, COLUMNS * sizeof *rows);
  if (rows == NULL) return from_int(env, -ENOMEM);
  for (size_t i = 0; i < length; i++) {
    if (read_row(((const int32_t *)pids)[i], rows + count * COLUMNS)) {
      count++;
    } else if (is_shortage(errno)) {
      int error = errno;
      free(rows);
      return from_int(env, -error);
    }
  }
  return to_table(env, rows, count * COLUMNS);
}

/*
 * Takes some 1.5 us per process, because getsid(2) reads no file in /proc. A process that has ended since it was listed
 * has session -1.
 */
napi_value agent_process_sessions(napi_env env, napi_callback_info info) {
  int32_t *rows = NULL;
  size_t count = 0, room = 0;
  DIR *proc = opendir("/proc");
  (void)info;
  if (proc == NULL) return from_int(env, -errno);
  for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    if (count == room) {
      room = room * 2 + 64;
      int32_t *larger = realloc(rows, room * 2 * sizeof *rows);
      if (larger == NULL) {
        free(rows);
        closedir(proc);
        return from_int(env, -ENOMEM);
      }
      rows = larger;
    }
    pid_t pid = atoi(entry->d_name);
    pid_t session = getsid(pid);
    rows[2 * count] = pid;
    rows[2 * count + 1] = session;
    count++;
  }
  closedir(proc);
  return to_table(env, rows, 2 * count);
}

/* Returns the parent also if the process is a zombie. */
long agent_parent_of(pid_t pid) {
  int32_t row[COLUMNS];
  return read_row(pid, row) ? row[PARENT] : fail_with(ESRCH);
}

long agent_is_alive(pid_t pid) {
  int32_t row[COLUMNS];
  return read_row(pid, row) && row[STATE] != 'Z' && row[STATE] != 'X';
}
