#include <string.h>
#include <unistd.h>

#include "values.h"

/* environ(): every entry as bytes, in order; process.env loses what is not UTF-8, duplicates, and names without "=". */
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
