#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "values.h"

/* makeCharacterDevice(path, major, minor): a device node for its owner alone (mknod(2)). */
napi_value agent_make_character_device(napi_env env, napi_callback_info info) {
  napi_value args[3];
  char path[PATH_MAX];
  size_t length = 0;
  get_arguments(env, info, 3, args);
  if (napi_get_value_string_utf8(env, args[0], path, sizeof path, &length) != napi_ok || length == sizeof path - 1)
    return from_int(env, -ENAMETOOLONG);
  dev_t device = makedev((unsigned)to_int(env, args[1]), (unsigned)to_int(env, args[2]));
  return from_result(env, mknod(path, S_IFCHR | 0600, device));
}
