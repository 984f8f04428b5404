#include <sys/resource.h>
#include <sys/types.h>

#include "values.h"

/* openFilesLimitOf(pid): another process's soft RLIMIT_NOFILE. Pid 0, which would mean this process, is refused. */
napi_value agent_open_files_limit_of(napi_env env, napi_callback_info info) {
  napi_value arg;
  struct rlimit limit;
  get_arguments(env, info, 1, &arg);
  pid_t pid = to_int(env, arg);
  if (pid <= 0) return from_int(env, -EINVAL);
  if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0) return from_int(env, -errno);
  return from_int(env, limit.rlim_cur > INT32_MAX ? INT32_MAX : (int64_t)limit.rlim_cur);
}
