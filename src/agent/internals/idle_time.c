/*
 * Node makes libuv measure how long the event loop waits, which the agent never reads. For that libuv polls twice at
 * each wait, first without waiting. On a libuv with other flags it still measures.
 */
#include <uv.h>

#include "../native/addon/values.h"

/* The first internal field of a loop is its flags (uv-common.h, uv__loop_internal_fields_s). Node sets only this. */
void measure_no_idle_time(napi_env env) {
  uv_loop_t *loop = NULL;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok || uv_version() >> 8 != UV_VERSION_HEX >> 8) return;
  unsigned *flags = loop->internal_fields;
  if (*flags == UV_METRICS_IDLE_TIME) *flags = 0;
}
