/* What the agent asks of its own process, and whether the kernel lets it make the calls that it needs. */
#include <linux/capability.h>
#include <malloc.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "values.h"

/* glibc's own first value. */
#define LARGE_BLOCK_BYTES (128 * 1024)

/*
 * By default, once glibc has freed such a block, it takes later ones from its heap. Memory there was written before and
 * never returns to the kernel. A new mapping takes only the pages that are written.
 */
__attribute__((constructor)) static void map_large_blocks(void) { mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES); }

/* process.env loses bytes that are not UTF-8, duplicates, and names without "=". */
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

/* By capget(2), because /proc may be missing. */
napi_value agent_effective_capabilities(napi_env env, napi_callback_info info) {
  (void)info;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
  napi_value value = NULL;
  if (syscall(SYS_capget, &header, sets) < 0) return from_int(env, -errno);
  napi_create_bigint_uint64(env, (uint64_t)sets[1].effective << 32 | sets[0].effective, &value);
  return value;
}

/* EINVAL: the kernel knows no filters. */
long agent_seccomp_mode(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0); }

long agent_forbid_dumps(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

long agent_trim_heap(void) { return malloc_trim(0); }

/* Node's own way out waits for libuv's threads, and one that hangs in a dead file system never comes back. */
long agent_exit_now(int status) { _exit(status); }

/* With arguments that the kernel always refuses, so that no process starts. */
long agent_probe_clone3(void) { return syscall(SYS_clone3, NULL, 0); }

/* A range that ends before it begins. */
long agent_probe_close_range(void) { return syscall(SYS_close_range, 1U, 0U, 0U); }
