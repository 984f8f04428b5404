#include <stdbool.h>
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

/* setRealtimeNs(ns): steps CLOCK_REALTIME to a BigInt of nanoseconds since 1970. */
napi_value agent_set_realtime_ns(napi_env env, napi_callback_info info) {
  napi_value arg;
  int64_t ns = 0;
  bool lossless = false;
  get_arguments(env, info, 1, &arg);
  if (napi_get_value_bigint_int64(env, arg, &ns, &lossless) != napi_ok || !lossless || ns < 0)
    return from_int(env, -EINVAL);
  struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  return from_result(env, clock_settime(CLOCK_REALTIME, &time));
}
