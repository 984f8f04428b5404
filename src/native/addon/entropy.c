#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>

#include "values.h"

/* Since Linux 4.14; older headers lack it. */
#ifndef RNDRESEEDCRNG
#define RNDRESEEDCRNG _IO('R', 0x07)
#endif

/* Larger requests gain nothing: the kernel mixes 64 bytes at a time, and a fault in the middle leaves a part mixed in. */
enum { BLOCK_BYTES = 512 };

/* struct rand_pool_info with room for a block. The count is in bits, the size in bytes (random(4)). */
struct block {
  int entropy_count;
  int buf_size;
  unsigned char bytes[BLOCK_BYTES];
};

/* creditEntropy(fd, bytes): RNDADDENTROPY, which mixes up to 512 bytes in and credits them in full. */
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

/* reseedCrng(fd): RNDRESEEDCRNG, which makes the kernel derive a new key from its pool now. */
napi_value agent_reseed_crng(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  return from_result(env, ioctl(to_int(env, fd), RNDRESEEDCRNG, 0));
}
