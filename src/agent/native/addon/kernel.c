/*
 * System calls for the clock and for the kernel's random generator. The probe functions pass an invalid argument, so
 * they change nothing. The kernel checks the privilege first: EPERM means that the privilege is missing, EINVAL that
 * the process has it.
 */
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <time.h>

#include "values.h"

enum { NS_PER_S = 1000000000 };

napi_value agent_realtime_ns(napi_env env, napi_callback_info info) {
  (void)info;
  struct timespec now = {0};
  napi_value value = NULL;
  clock_gettime(CLOCK_REALTIME, &now);
  napi_create_bigint_int64(env, (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec, &value);
  return value;
}

/* setRealtimeNs(ns): steps the clock to this time, in nanoseconds since 1970. */
napi_value agent_set_realtime_ns(napi_env env, napi_callback_info info) {
  napi_value arg;
  int64_t ns = 0;
  bool lossless = false;
  get_arguments(env, info, 1, &arg);
  if (napi_get_value_bigint_int64(env, arg, &ns, &lossless) != napi_ok || !lossless || ns < 0)
    return from_int(env, -EINVAL);
  struct timespec time = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
  return from_result(env, clock_settime(CLOCK_REALTIME, &time));
}

/*
 * Tests whether the agent may step the clock. A tick of 0 is invalid, so clock_adjtime(2) fails and does not change the
 * clock.
 */
long agent_probe_clock_step(void) {
  struct timex change = {.modes = ADJ_TICK, .tick = 0};
  return clock_adjtime(CLOCK_REALTIME, &change);
}

/* Defined by the kernel's headers since Linux 4.14. */
#ifndef RNDRESEEDCRNG
#define RNDRESEEDCRNG _IO('R', 0x07)
#endif

/*
 * Largest block of entropy per call. Larger blocks have no benefit, because the kernel reads and mixes in 64 bytes at a
 * time anyway.
 */
enum { BLOCK_BYTES = 512 };

/* struct rand_pool_info (random(4)), with space for a block. `entropy_count` is in bits, `buf_size` in bytes. */
struct block {
  int entropy_count;
  int buf_size;
  unsigned char bytes[BLOCK_BYTES];
};

napi_value agent_credit_entropy(napi_env env, napi_callback_info info) {
  napi_value args[2];
  void *bytes = NULL;
  size_t length = 0;
  struct block block;
  get_arguments(env, info, 2, args);
  if (napi_get_buffer_info(env, args[1], &bytes, &length) != napi_ok || length == 0 || length > BLOCK_BYTES)
    return from_int(env, -EINVAL);
  block.entropy_count = (int)length * 8;
  block.buf_size = (int)length;
  memcpy(block.bytes, bytes, length);
  napi_value result = from_result(env, ioctl(to_int(env, args[0]), RNDADDENTROPY, &block));
  explicit_bzero(&block, sizeof block);
  return result;
}

long agent_reseed_crng(int fd) { return ioctl(fd, RNDRESEEDCRNG, 0); }

/* The kernel rejects the negative entropy_count, so the call changes nothing. */
long agent_probe_credit_entropy(int fd) {
  struct rand_pool_info none = {.entropy_count = -1, .buf_size = 0};
  return ioctl(fd, RNDADDENTROPY, &none);
}

/* makeCharacterDevice(path, major, minor): creates a character device node with mode 0600. */
napi_value agent_make_character_device(napi_env env, napi_callback_info info) {
  napi_value args[3];
  char path[PATH_MAX];
  get_arguments(env, info, 3, args);
  dev_t device = makedev((unsigned)to_int(env, args[1]), (unsigned)to_int(env, args[2]));
  return from_result(env, to_path(env, args[0], path) ? mknod(path, S_IFCHR | 0600, device) : -1);
}
