#include "leave.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "signals.h"

/* A core dump of interest would be the agent's. */
static void prevent_core_dump(void) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

_Noreturn void leave_like(int status) {
  if (!WIFSIGNALED(status))
    _exit(WEXITSTATUS(status));
  int number = WTERMSIG(status);
  prevent_core_dump();
  restore_default(number);
  block_signals(ALL_SIGNALS & ~ONLY(number));
  kill(getpid(), number);
  _exit(128 + number);
}
