#include <linux/capability.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "values.h"

/* effectiveCapabilities(): this process's, as a BigInt with a bit for each (capabilities(7)). Needs no /proc. */
napi_value agent_effective_capabilities(napi_env env, napi_callback_info info) {
  (void)info;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
  napi_value value = NULL;
  if (syscall(SYS_capget, &header, sets) < 0) return from_int(env, -errno);
  napi_create_bigint_uint64(env, (uint64_t)sets[1].effective << 32 | sets[0].effective, &value);
  return value;
}

/* seccompMode(): 0 without a filter, 2 with one (prctl(2)); -EINVAL where the kernel has none. */
napi_value agent_seccomp_mode(napi_env env, napi_callback_info info) {
  (void)info;
  return from_result(env, prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
}
