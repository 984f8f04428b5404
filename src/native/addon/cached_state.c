#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "values.h"

enum { PATH_BYTES = 4096 };

/* Of the headers of Linux 5.12. */
#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

static int64_t ns_of(struct statx_timestamp time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

/*
 * cachedState(path): [dev, ino, size, mtimeNs, ctimeNs] of a file that the kernel has in memory, or a negated errno:
 * EAGAIN where it would have to ask a disk, a server or another process. Never blocks (openat2(2), Linux 5.12).
 */
napi_value agent_cached_state(napi_env env, napi_callback_info info) {
  napi_value arg, state;
  char path[PATH_BYTES];
  struct statx file;
  get_arguments(env, info, 1, &arg);
  napi_get_value_string_utf8(env, arg, path, sizeof path, NULL);
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (fd < 0) return from_result(env, fd);
  int result = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &file);
  int error = errno;
  close(fd);
  if (result < 0) return from_int(env, -error);
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
