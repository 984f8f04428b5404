#include "failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Noreturn void fail_because(const char *what, const char *reason) {
  dprintf(STDERR_FILENO, "guest-agent: %s: %s\n", what, reason);
  _exit(LAUNCHER_FAILED);
}

_Noreturn void fail(const char *what) {
  fail_because(what, strerror(errno));
}
