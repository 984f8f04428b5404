/* Functions about the agent's own process, and probes for system calls that it needs. */
#include <linux/capability.h>
#include <malloc.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "values.h"

/* glibc's initial value of M_MMAP_THRESHOLD (mallopt(3)). */
#define LARGE_BLOCK_BYTES (128 * 1024)

/*
 * Sets a constant threshold for malloc(3). Blocks of at least this size are mapped separately, so that free(3) returns
 * them to the kernel. By default glibc raises the threshold when such a block is freed. It then takes larger blocks
 * from the heap, which hardly ever shrinks.
 */
__attribute__((constructor)) static void map_large_blocks(void) { mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES); }

/* Used in place of process.env, which loses entries without "=", repeated names, and bytes that are not UTF-8. */
napi_value agent_environ(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value entries = NULL;
  napi_create_array(env, &entries);
  for (uint32_t i = 0; environ != NULL && environ[i] != NULL; i++) {
    napi_value entry = NULL;
    napi_create_buffer_copy(env, strlen(environ[i]), environ[i], NULL, &entry);
    napi_set_element(env, entries, i, entry);
  }
  return entries;
}

/* Uses capget(2), because /proc may be missing. */
napi_value agent_effective_capabilities(napi_env env, napi_callback_info info) {
  (void)info;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
  napi_value value = NULL;
  if (syscall(SYS_capget, &header, sets) < 0) return from_int(env, -errno);
  napi_create_bigint_uint64(env, (uint64_t)sets[1].effective << 32 | sets[0].effective, &value);
  return value;
}

/* EINVAL: the kernel does not support seccomp filters. */
long agent_seccomp_mode(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0); }

long agent_forbid_dumps(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

long agent_trim_heap(void) { return malloc_trim(0); }

/*
 * exit(3) is not used, because it waits for libuv's threads, and a thread that hangs in a dead file system never
 * returns.
 */
long agent_exit_now(int status) { _exit(status); }

/* clone3(2) always rejects these arguments, so no process is started. */
long agent_probe_clone3(void) { return syscall(SYS_clone3, NULL, 0); }

/* close_range(2) rejects this range, which ends before it begins, so no descriptor is closed. */
long agent_probe_close_range(void) { return syscall(SYS_close_range, 1U, 0U, 0U); }
