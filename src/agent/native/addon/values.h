/* Conversions between JavaScript values and C. addon.ts guarantees the types; a value of another type reads as zero. */
#ifndef AGENT_VALUES_H
#define AGENT_VALUES_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "addon.h"

/* Fills `values` with the call's arguments; missing ones are undefined. */
static inline void get_arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values) {
  napi_get_cb_info(env, info, &count, values, NULL, NULL);
}

/* Fills `values` with the arguments of a method call. Returns the C struct of the method's object, or NULL. */
static inline void *get_object(napi_env env, napi_callback_info info, size_t count, napi_value *values) {
  napi_value self;
  void *object = NULL;
  napi_get_cb_info(env, info, &count, values, &self, NULL);
  napi_unwrap(env, self, &object);
  return object;
}

static inline int32_t to_int(napi_env env, napi_value value) {
  int32_t number = 0;
  napi_get_value_int32(env, value, &number);
  return number;
}

static inline bool to_bool(napi_env env, napi_value value) {
  bool truth = false;
  napi_get_value_bool(env, value, &truth);
  return truth;
}

/* A property of an object; undefined if it is missing. */
static inline napi_value property(napi_env env, napi_value object, const char *name) {
  napi_value value = NULL;
  napi_get_named_property(env, object, name, &value);
  return value;
}

/* Reads a number property. If it is undefined, returns false and does not change `number`. */
static inline bool get_int(napi_env env, napi_value object, const char *name, int32_t *number) {
  return napi_get_value_int32(env, property(env, object, name), number) == napi_ok;
}

/* Copies a path or name. If it does not fit, returns false and sets errno to ENAMETOOLONG. */
static inline bool to_path(napi_env env, napi_value value, char path[PATH_MAX]) {
  size_t length = 0;
  napi_get_value_string_utf8(env, value, path, PATH_MAX, &length);
  errno = ENAMETOOLONG;
  return length < PATH_MAX - 1;
}

static inline napi_value from_int(napi_env env, int64_t number) {
  napi_value value = NULL;
  napi_create_int64(env, number, &value);
  return value;
}

/* Converts the result of a call that returns -1 and sets errno into a negated errno. */
static inline napi_value from_result(napi_env env, long result) { return from_int(env, result < 0 ? -errno : result); }

static inline napi_value from_bool(napi_env env, bool truth) {
  napi_value value = NULL;
  napi_get_boolean(env, truth, &value);
  return value;
}

static inline int fail_with(int error) {
  errno = error;
  return -1;
}

/* Closes a descriptor if it is not negative, and keeps errno. */
static inline void close_keep_errno(int fd) {
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
}

/* Reads the start of a small file as text. Returns its length, or -1 and an empty text if it cannot be read. */
static inline ssize_t read_text(int directory, const char *path, char *text, size_t size) {
  int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
  close_keep_errno(fd);
  text[length < 0 ? 0 : length] = '\0';
  return length;
}

#define METHOD(text, call) {.utf8name = (text), .method = (call), .attributes = napi_default_method}

static inline napi_value define_class(napi_env env, const char *name, napi_callback construct, size_t count,
                                      const napi_property_descriptor *methods) {
  napi_value class = NULL;
  napi_define_class(env, name, NAPI_AUTO_LENGTH, construct, NULL, count, methods, &class);
  return class;
}

#endif
