#include "trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "failure.h"
#include "signals.h"

static bool is_on;

void read_trace_level(void) {
  const char *level = getenv("SVC_LOG_LEVEL");
  is_on = level != NULL && strcmp(level, "debug") == 0;
}

static void say(const char *event, const char *first, int first_value, const char *second, int second_value) {
  struct timespec now;
  struct tm parts;
  char time[32], line[200];
  if (!is_on || clock_gettime(CLOCK_REALTIME, &now) < 0 || gmtime_r(&now.tv_sec, &parts) == NULL)
    return;
  strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(line, sizeof line,
           "{\"time\":\"%s.%03ldZ\",\"level\":\"debug\",\"event\":\"%s\",\"%s\":%d,\"%s\":%d}\n",
           time, now.tv_nsec / 1000000, event, first, first_value, second, second_value);
  say_without_waiting(line);
}

void trace_signal(const siginfo_t *info) {
  say("launcher_signal", "signal", info->si_signo, "sender", sent_by_process(info) ? info->si_pid : 0);
}

void trace_reaped(pid_t process, int status) {
  if (WIFSIGNALED(status))
    say("launcher_reaped", "pid", process, "signal", WTERMSIG(status));
  else
    say("launcher_reaped", "pid", process, "status", WEXITSTATUS(status));
}
