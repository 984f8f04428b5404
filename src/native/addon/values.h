/* Conversions between JavaScript values and C. The typed loader guarantees the types; a mismatch reads as zero. */
#ifndef AGENT_VALUES_H
#define AGENT_VALUES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "addon.h"

/* Fills `values` with the call's arguments; those not given are undefined. */
static inline void get_arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values) {
  napi_get_cb_info(env, info, &count, values, NULL, NULL);
}

static inline int32_t to_int(napi_env env, napi_value value) {
  int32_t number = 0;
  napi_get_value_int32(env, value, &number);
  return number;
}

static inline napi_value from_int(napi_env env, int64_t number) {
  napi_value value = NULL;
  napi_create_int64(env, number, &value);
  return value;
}

/* 0 or a negative errno, from the result of a call that returns -1 and sets errno. */
static inline napi_value from_result(napi_env env, long result) { return from_int(env, result < 0 ? -errno : result); }

static inline napi_value from_bool(napi_env env, int truth) {
  napi_value value = NULL;
  napi_get_boolean(env, truth != 0, &value);
  return value;
}

static inline napi_value from_pair(napi_env env, int first, int second) {
  napi_value pair = NULL;
  napi_create_array_with_length(env, 2, &pair);
  napi_set_element(env, pair, 0, from_int(env, first));
  napi_set_element(env, pair, 1, from_int(env, second));
  return pair;
}

static inline napi_value property(napi_env env, napi_value object, const char *name) {
  napi_value value = NULL;
  napi_get_named_property(env, object, name, &value);
  return value;
}

#endif
