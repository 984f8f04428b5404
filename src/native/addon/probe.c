/*
 * Calls with invalid arguments, which the kernel always refuses. It checks privileges before arguments, so its error
 * tells whether a valid call would be permitted; and nothing changes.
 */
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "values.h"

/* probeClockStep(): -EINVAL where the clock may be set, else -EPERM. A tick of 0 is invalid. */
napi_value agent_probe_clock_step(napi_env env, napi_callback_info info) {
  (void)info;
  struct timex change = {.modes = ADJ_TICK, .tick = 0};
  return from_result(env, clock_adjtime(CLOCK_REALTIME, &change));
}

/* probeCreditEntropy(fd): -EINVAL where RNDADDENTROPY is permitted, else -EPERM. A negative count is invalid. */
napi_value agent_probe_credit_entropy(napi_env env, napi_callback_info info) {
  napi_value fd;
  struct rand_pool_info none = {.entropy_count = -1, .buf_size = 0};
  get_arguments(env, info, 1, &fd);
  return from_result(env, ioctl(to_int(env, fd), RNDADDENTROPY, &none));
}

/* probeClone3(): -EINVAL where clone3(2) can be called, else -ENOSYS or a seccomp filter's errno. Starts no process. */
napi_value agent_probe_clone3(napi_env env, napi_callback_info info) {
  (void)info;
  return from_result(env, syscall(SYS_clone3, NULL, 0));
}

/* probeCloseRange(): the same for close_range(2), with a range that ends before it begins. */
napi_value agent_probe_close_range(napi_env env, napi_callback_info info) {
  (void)info;
  return from_result(env, syscall(SYS_close_range, 1U, 0U, 0U));
}
