#include <malloc.h>

#include "values.h"

/* trimHeap(): whole free pages of the C library's heap go back to the kernel. 1: there were some. */
napi_value agent_trim_heap(napi_env env, napi_callback_info info) {
  (void)info;
  return from_int(env, malloc_trim(0));
}
