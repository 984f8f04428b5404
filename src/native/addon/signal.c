#include <signal.h>

#include "values.h"

/*
 * kill(pid, signal): any number up to SIGRTMAX, which process.kill refuses beyond 31. Ids up to 1 are refused here too:
 * they mean this process's own group, every process, or init, and only a bug asks for them.
 */
napi_value agent_kill(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  pid_t pid = to_int(env, args[0]);
  return pid <= 1 ? from_int(env, -EINVAL) : from_result(env, kill(pid, to_int(env, args[1])));
}

/* killGroup(pgid, signal): the same for a whole process group. */
napi_value agent_kill_group(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  pid_t group = to_int(env, args[0]);
  return group <= 1 ? from_int(env, -EINVAL) : from_result(env, kill(-group, to_int(env, args[1])));
}
