#include "failure.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "signals.h"

#define WRITE_LIMIT_US 200000

_Noreturn void fail_because(const char *what, const char *reason) {
  dprintf(STDERR_FILENO, "guest-agent: %s: %s\n", what, reason);
  _exit(LAUNCHER_FAILED);
}

/* Does nothing. The handler exists so that SIGALRM interrupts the write instead of being ignored. */
static void on_alarm(int number) {
  (void)number;
}

void say_without_waiting(const char *text) {
  struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&output, 1, 0) <= 0)
    return;
  /*
   * The write may block even after poll(2), because other processes write to the same stream. O_NONBLOCK would affect
   * these processes, too, so a timer interrupts the write instead. The timer repeats, in case it first fires before the
   * write has started.
   */
  struct sigaction interrupting = {.sa_handler = on_alarm};
  struct itimerval limit = {{0, WRITE_LIMIT_US}, {0, WRITE_LIMIT_US}}, none = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &interrupting, NULL);
  block_signals(ALL_SIGNALS & ~ONLY(SIGALRM));
  setitimer(ITIMER_REAL, &limit, NULL);
  if (write(STDERR_FILENO, text, strlen(text)) < 0) {
  }
  setitimer(ITIMER_REAL, &none, NULL);
  block_signals(ALL_SIGNALS);
}

_Noreturn void fail(const char *what) {
  fail_because(what, strerror(errno));
}
