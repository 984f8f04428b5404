#include <malloc.h>

#include "values.h"

/* trimHeap(): returns whole free pages of the C library's heap to the kernel. 1: it had some. */
napi_value agent_trim_heap(napi_env env, napi_callback_info info) {
  (void)info;
  return from_int(env, malloc_trim(0));
}
