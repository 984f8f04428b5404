#include "signals.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FIRST_REAL_TIME 32
#define LAST_SIGNAL 64

/* struct sigaction of rt_sigaction(2), which has the same layout on both architectures. */
struct kernel_action {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)(void);
  signal_mask mask;
};

static void set_disposition(int number, void (*handler)(int)) {
  struct kernel_action action = {.handler = handler};
  syscall(SYS_rt_sigaction, number, &action, NULL, sizeof(signal_mask));
}

void block_signals(signal_mask blocked) {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);
}

void restore_default(int number) {
  set_disposition(number, SIG_DFL);
}

void ignore_real_time_signals(void) {
  for (int number = FIRST_REAL_TIME; number <= LAST_SIGNAL; number++)
    set_disposition(number, SIG_IGN);
}

int take_signal(signal_mask wanted, int timeout_ms, siginfo_t *info) {
  struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
  long number = syscall(SYS_rt_sigtimedwait, &wanted, info, timeout_ms < 0 ? NULL : &timeout, sizeof wanted);
  return number > 0 ? (int)number : 0;
}

bool sent_by_process(const siginfo_t *info) {
  return info->si_code <= 0;
}
