#include "addon.h"

static void export_function(napi_env env, napi_value exports, const char *name, napi_callback call) {
  napi_value function = NULL;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, call, NULL, &function);
  napi_set_named_property(env, exports, name, function);
}

NAPI_MODULE_INIT() {
#define EXPORT_FUNCTION(name, call) export_function(env, exports, name, call);
#define EXPORT_CLASS(name, define) napi_set_named_property(env, exports, name, define(env));
  AGENT_FUNCTIONS(EXPORT_FUNCTION)
  AGENT_CLASSES(EXPORT_CLASS)
  return exports;
}
