#include <unistd.h>

#include "values.h"

/*
 * exitNow(status): ends the process at once. Node's own way out waits for libuv's threads, and one that hangs in a dead
 * file system never comes back.
 */
napi_value agent_exit_now(napi_env env, napi_callback_info info) {
  napi_value status;
  get_arguments(env, info, 1, &status);
  _exit(to_int(env, status));
}
