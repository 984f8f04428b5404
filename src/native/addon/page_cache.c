#include <fcntl.h>

#include "values.h"

/* dropFileCache(fd): drops the file's clean pages from the page cache, so that the next open reads the disk. */
napi_value agent_drop_file_cache(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  /* posix_fadvise(2) returns the errno instead of setting it. */
  return from_int(env, -posix_fadvise(to_int(env, fd), 0, 0, POSIX_FADV_DONTNEED));
}
