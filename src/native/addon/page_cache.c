#include <fcntl.h>

#include "values.h"

/* dropFileCache(fd): the file's clean pages leave the page cache, so that the next open reads what is there now. */
napi_value agent_drop_file_cache(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  /* Unlike its kin it returns the errno. */
  return from_int(env, -posix_fadvise(to_int(env, fd), 0, 0, POSIX_FADV_DONTNEED));
}
