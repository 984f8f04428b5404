#include <time.h>

#include "values.h"

/* realtimeNs(): CLOCK_REALTIME as a BigInt. */
napi_value agent_realtime_ns(napi_env env, napi_callback_info info) {
  (void)info;
  struct timespec now = {0};
  napi_value value = NULL;
  clock_gettime(CLOCK_REALTIME, &now);
  napi_create_bigint_int64(env, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, &value);
  return value;
}
