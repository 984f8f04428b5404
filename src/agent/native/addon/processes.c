/* Other processes: the agent's children by their ids, which stay theirs until they are reaped, and those of /proc. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "values.h"

/* Since Linux 5.3, of the same number on both architectures; the C library of Debian 11 does not know them all. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

/* One certain child, never -1: the children of others (Node's child_process) keep their statuses. */
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

/* Ids up to 1 mean this process's own group, every process, or init, and only a bug asks for them. */
long agent_kill(pid_t pid, int signal) { return pid <= 1 ? refuse(EINVAL) : kill(pid, signal); }

long agent_kill_group(pid_t group, int signal) { return group <= 1 ? refuse(EINVAL) : kill(-group, signal); }

/* Pid 0 would mean this process. */
long agent_open_files_limit_of(pid_t pid) {
  struct rlimit limit;
  if (pid <= 0) return refuse(EINVAL);
  if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0) return -1;
  return limit.rlim_cur > INT32_MAX ? INT32_MAX : (long)limit.rlim_cur;
}

/* Of a row: pid, parent, process group, session, state character, start time (ticks, modulo 2^31). */
enum { PID, PARENT, GROUP, SESSION, STATE, START, COLUMNS };

/*
 * Fills all columns but the pid from <name>/stat below an open folder; false when there is no such process. The name in
 * parentheses may itself hold blanks and parentheses, so parse from the last one on (proc(5)).
 */
static bool read_row(int proc, const char *name, int32_t *row) {
  char path[300], text[1024];
  char state;
  unsigned long long start;
  snprintf(path, sizeof path, "%s/stat", name);
  int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  const char *rest = strrchr(text, ')');
  /* Fields 3 to 6, and 22. */
  const char *format = " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (rest == NULL || sscanf(rest + 1, format, &state, &row[PARENT], &row[GROUP], &row[SESSION], &start) != 5)
    return false;
  row[STATE] = state;
  row[START] = (int32_t)(start & INT32_MAX);
  return true;
}

static bool started_at(pid_t pid, int32_t start) {
  char path[32];
  int32_t row[COLUMNS];
  snprintf(path, sizeof path, "/proc/%d", pid);
  return read_row(AT_FDCWD, path, row) && row[START] == start;
}

/* The pidfd is opened before the start times are compared, so it cannot be another's. */
long agent_signal_process(pid_t pid, int start, int signal) {
  if (pid <= 1) return refuse(EINVAL);
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  /* EPERM: a filter forbids the call. */
  if (process < 0) return errno == EPERM ? refuse(ENOSYS) : -1;
  long result = started_at(pid, start) ? syscall(SYS_pidfd_send_signal, process, signal, NULL, 0) : refuse(ESRCH);
  close_after(process);
  return result;
}

/* Fills a row of a process by its name in the open /proc; false when there is none. */
typedef bool row_reader(int proc, const char *name, int32_t *row);

/* Appends every process of /proc to `rows`, with its pid in the first column; the number of rows, or -1 with errno. */
static ssize_t read_rows(int32_t **rows, size_t columns, row_reader *fill) {
  size_t count = 0, room = 0;
  DIR *proc = opendir("/proc");
  if (proc == NULL) return -1;
  for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    if (count == room) {
      room = room * 2 + 64;
      int32_t *larger = realloc(*rows, room * columns * sizeof **rows);
      if (larger == NULL) {
        closedir(proc);
        return refuse(ENOMEM);
      }
      *rows = larger;
    }
    int32_t *row = *rows + count * columns;
    row[PID] = atoi(entry->d_name);
    count += fill(dirfd(proc), entry->d_name, row);
  }
  closedir(proc);
  return (ssize_t)count;
}

static napi_value rows_of_all(napi_env env, size_t columns, row_reader *fill) {
  int32_t *rows = NULL;
  void *bytes = NULL;
  napi_value buffer = NULL, table = NULL;
  ssize_t count = read_rows(&rows, columns, fill);
  if (count < 0) {
    int error = errno;
    free(rows);
    return from_int(env, -error);
  }
  size_t cells = (size_t)count * columns;
  napi_create_arraybuffer(env, cells * sizeof *rows, &bytes, &buffer);
  if (cells > 0) memcpy(bytes, rows, cells * sizeof *rows);
  free(rows);
  napi_create_typedarray(env, napi_int32_array, cells, buffer, 0, &table);
  return table;
}

/* Takes some 5 us a process. */
napi_value agent_process_table(napi_env env, napi_callback_info info) {
  (void)info;
  return rows_of_all(env, COLUMNS, read_row);
}

/* Columns are pid and session: by getsid(2), which needs no file of the process. */
static bool read_session(int proc, const char *name, int32_t *row) {
  (void)proc;
  (void)name;
  row[1] = getsid(row[PID]);
  return row[1] >= 0;
}

/* Takes some 1 us a process. */
napi_value agent_process_sessions(napi_env env, napi_callback_info info) {
  (void)info;
  return rows_of_all(env, 2, read_session);
}

long agent_parent_of(pid_t pid) {
  char path[32];
  int32_t row[COLUMNS];
  snprintf(path, sizeof path, "/proc/%d", pid);
  if (!read_row(AT_FDCWD, path, row)) return refuse(ESRCH);
  return row[STATE] == 'Z' || row[STATE] == 'X' ? refuse(ECHILD) : row[PARENT];
}
