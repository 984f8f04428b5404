#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "values.h"

/* One certain child, never -1: the children of others (Node's child_process) keep their statuses. */
static int wait_for(pid_t pid, siginfo_t *info, int flags) {
  int result;
  memset(info, 0, sizeof *info);
  do
    result = waitid(P_PID, (id_t)pid, info, WEXITED | WNOHANG | flags);
  while (result < 0 && errno == EINTR);
  return result;
}

/*
 * peekEnd(pid): how a child has ended, leaving it a zombie, so that its id stays reserved. 0 while it runs, otherwise
 * si_code (CLD_EXITED 1, CLD_KILLED 2, CLD_DUMPED 3) * 256 + si_status (waitid(2)).
 */
napi_value agent_peek_end(napi_env env, napi_callback_info info) {
  napi_value pid;
  siginfo_t end;
  get_arguments(env, info, 1, &pid);
  if (wait_for(to_int(env, pid), &end, WNOWAIT) < 0) return from_int(env, -errno);
  return from_int(env, end.si_pid == 0 ? 0 : end.si_code * 256 + end.si_status);
}

/* reap(pid): takes an ended child out of the process table; its id may be given to another process from then on. */
napi_value agent_reap(napi_env env, napi_callback_info info) {
  napi_value pid;
  siginfo_t end;
  get_arguments(env, info, 1, &pid);
  return from_result(env, wait_for(to_int(env, pid), &end, 0));
}
