#include "remains.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "signals.h"

#define TERM_GRACE_MS 10000
/* Something that SIGKILL does not end, such as a process stuck in the kernel, must not keep the launcher. */
#define KILL_GRACE_MS 10000
#define KILL_ROUND_MS 20
/* PID_MAX_LIMIT of the kernel, where /proc does not tell less. */
#define HIGHEST_PID 4194304

static long now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static pid_t highest_pid(void)
{
  char digits[16] = "";
  int file = open("/proc/sys/kernel/pid_max", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, digits, sizeof digits - 1);
  if (file >= 0)
    close(file);
  long highest = length > 0 ? strtol(digits, NULL, 10) : 0;
  return highest > 0 && highest < HIGHEST_PID ? (pid_t)highest : HIGHEST_PID;
}

/* waitid(2) knows whose child a process is; WNOWAIT leaves it as it is. */
static bool is_own_child(pid_t process)
{
  siginfo_t info;
  return waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Asks for every process id in turn: the one way to find one's children that needs no /proc. */
static void signal_children(int number)
{
  pid_t highest = highest_pid();
  for (pid_t process = 2; process <= highest; process++) {
    if (is_own_child(process))
      kill(process, number);
  }
}

static void signal_remains(int number)
{
  if (getpid() == 1)
    kill(-1, number);
  else
    signal_children(number);
}

/* Reaps until `deadline_ms`; true when no child is left. */
static bool reap_until(long deadline_ms)
{
  for (;;) {
    pid_t ended;
    while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
      ;
    if (ended < 0)
      return true;
    long left_ms = deadline_ms - now_ms();
    if (left_ms <= 0)
      return false;
    siginfo_t info;
    take_signal(ONLY(SIGCHLD), (int)left_ms, &info);
  }
}

void end_remains(void)
{
  if (reap_until(now_ms()))
    return;
  signal_remains(SIGTERM);
  signal_remains(SIGCONT);
  if (reap_until(now_ms() + TERM_GRACE_MS))
    return;
  long deadline_ms = now_ms() + KILL_GRACE_MS;
  do
    signal_remains(SIGKILL);
  while (!reap_until(now_ms() + KILL_ROUND_MS) && now_ms() < deadline_ms);
}
