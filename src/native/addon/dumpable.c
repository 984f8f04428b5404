#include <sys/prctl.h>

#include "values.h"

/* forbidDumps(): PR_SET_DUMPABLE 0. No core dump, no tracing and no look into memory or environment by the same user. */
napi_value agent_forbid_dumps(napi_env env, napi_callback_info info) {
  (void)info;
  return from_result(env, prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
}
