/* Reads from the page cache without blocking, and drops pages from it. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "values.h"

napi_value agent_read_cached(napi_env env, napi_callback_info info) {
  napi_value args[3];
  struct iovec part = {0};
  int64_t position = -1;
  ssize_t count;
  get_arguments(env, info, 3, args);
  if (napi_get_buffer_info(env, args[1], &part.iov_base, &part.iov_len) != napi_ok) return from_int(env, -EINVAL);
  napi_get_value_int64(env, args[2], &position);
  int fd = to_int(env, args[0]);
  do
    count = preadv2(fd, &part, 1, position < 0 ? -1 : position, RWF_NOWAIT);
  while (count < 0 && errno == EINTR);
  return from_result(env, count);
}

/* Headers of Linux before 5.12 do not define this flag. */
#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

static int64_t ns_of(struct statx_timestamp time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

/* Stats a file if the kernel has it cached; otherwise fails with EAGAIN (openat2(2), RESOLVE_CACHED). */
static int find_cached(const char *path, struct statx *file) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  int result = fd < 0 ? -1 : statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, file);
  close_keep_errno(fd);
  return result;
}

napi_value agent_cached_state(napi_env env, napi_callback_info info) {
  napi_value arg, state;
  char path[PATH_MAX];
  struct statx file;
  get_arguments(env, info, 1, &arg);
  if (!to_path(env, arg, path) || find_cached(path, &file) < 0) return from_int(env, -errno);
  const int64_t values[] = {(int64_t)makedev(file.stx_dev_major, file.stx_dev_minor), (int64_t)file.stx_ino,
                            (int64_t)file.stx_size, ns_of(file.stx_mtime), ns_of(file.stx_ctime)};
  enum { COUNT = sizeof values / sizeof *values };
  napi_create_array_with_length(env, COUNT, &state);
  for (uint32_t i = 0; i < COUNT; i++) {
    napi_value value;
    napi_create_bigint_int64(env, values[i], &value);
    napi_set_element(env, state, i, value);
  }
  return state;
}

/* posix_fadvise(2) returns the errno instead of setting it. */
long agent_drop_file_cache(int fd) {
  int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return error == 0 ? 0 : fail_with(error);
}
