/*
 * Reads CPU time and peak memory, either of an ended process (from its rusage) or of all processes of a cgroup (from
 * the cgroup's files).
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "values.h"

static napi_value to_numbers(napi_env env, const double *numbers, size_t count) {
  void *bytes = NULL;
  napi_value buffer = NULL, array = NULL;
  napi_create_arraybuffer(env, count * sizeof *numbers, &bytes, &buffer);
  if (bytes != NULL) memcpy(bytes, numbers, count * sizeof *numbers);
  napi_create_typedarray(env, napi_float64_array, count, buffer, 0, &array);
  return array;
}

static double to_us(struct timeval time) { return (double)time.tv_sec * 1e6 + (double)time.tv_usec; }

/* Calls the system call directly, because the C library's function lacks the fifth argument (rusage). */
napi_value agent_used_by(napi_env env, napi_callback_info info) {
  napi_value pid;
  siginfo_t end = {0};
  struct rusage used = {0}, own = {0};
  get_arguments(env, info, 1, &pid);
  long result = syscall(SYS_waitid, P_PID, to_int(env, pid), &end, WEXITED | WNOHANG | WNOWAIT, &used);
  if (result < 0 || end.si_pid == 0) return from_int(env, -ECHILD);
  getrusage(RUSAGE_SELF, &own);
  const double numbers[] = {to_us(used.ru_utime), to_us(used.ru_stime), (double)used.ru_maxrss * 1024,
                            (double)own.ru_maxrss * 1024};
  return to_numbers(env, numbers, sizeof numbers / sizeof *numbers);
}

/* Finds a line that consists of `key`, a space and a number. Returns the number, or -1 if there is no such line. */
static double value_of(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) == 0 && line[length] == ' ') return strtod(line + length, NULL);
  }
  return -1;
}

/* Reads three files in one call. Reading them with Node's functions took three times as long. */
napi_value agent_used_in(napi_env env, napi_callback_info info) {
  napi_value argument;
  char cpu[1024], events[1024], peak[32];
  get_arguments(env, info, 1, &argument);
  int directory = to_int(env, argument);
  read_text(directory, "cpu.stat", cpu, sizeof cpu);
  read_text(directory, "memory.events", events, sizeof events);
  read_text(directory, "memory.peak", peak, sizeof peak);
  const double numbers[] = {value_of(cpu, "user_usec"), value_of(cpu, "system_usec"),
                            isdigit((unsigned char)peak[0]) ? strtod(peak, NULL) : -1, value_of(events, "oom_kill")};
  return to_numbers(env, numbers, sizeof numbers / sizeof *numbers);
}
