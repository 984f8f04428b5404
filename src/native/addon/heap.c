#include <malloc.h>

#include "values.h"

/* Abseil's SetMutexDeadlockDetectionMode, which node exports as a C++ function; 0: no detection. */
__attribute__((weak)) void set_deadlock_detection(int mode) __asm__(
  "_ZN4absl29SetMutexDeadlockDetectionModeENS_15OnDeadlockCycleE");

/*
 * Node's own build looks for deadlocks among V8's mutexes: 2 ms of a start, and a table of 1 MiB that the first mutex
 * fills. So the launcher has the addon loaded with the program, and this is done before that. Later it does no harm.
 */
__attribute__((constructor)) static void detect_no_deadlocks(void) {
  if (set_deadlock_detection != NULL) set_deadlock_detection(0);
}

/* trimHeap(): returns whole free pages of the C library's heap to the kernel. 1: it had some. */
napi_value agent_trim_heap(napi_env env, napi_callback_info info) {
  (void)info;
  return from_int(env, malloc_trim(0));
}
