#include <pthread.h>
#include <signal.h>

#include "file_job.h"

int start_thread(void *(*run)(void *), void *data, size_t stack_bytes) {
  pthread_attr_t attributes;
  pthread_t id;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&id, &attributes, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

/* NUMBERS_n converts the first n arguments of a call from JavaScript to numbers. */
#define NUMBER(at) to_int(env, args[at])
#define NUMBERS_0 ()
#define NUMBERS_1 (NUMBER(0))
#define NUMBERS_2 (NUMBER(0), NUMBER(1))
#define NUMBERS_3 (NUMBER(0), NUMBER(1), NUMBER(2))

#define DEFINE_CALL(name, call, count, parameters)                           \
  static napi_value call##_of_js(napi_env env, napi_callback_info info) {    \
    napi_value args[3];                                                      \
    get_arguments(env, info, 3, args);                                       \
    return from_result(env, call NUMBERS_##count);                           \
  }
AGENT_CALLS(DEFINE_CALL)

#define DEFINE_FILE_CALL(name, call) \
  static napi_value call##_of_js(napi_env env, napi_callback_info info) { return on_thread(env, info, call); }
AGENT_FILE_CALLS(DEFINE_FILE_CALL)

static void export_function(napi_env env, napi_value exports, const char *name, napi_callback call) {
  napi_value function = NULL;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, call, NULL, &function);
  napi_set_named_property(env, exports, name, function);
}

NAPI_MODULE_INIT() {
#define EXPORT_CALL(name, call, count, parameters) export_function(env, exports, name, call##_of_js);
#define EXPORT_FUNCTION(name, call) export_function(env, exports, name, call);
#define EXPORT_FILE_CALL(name, call) export_function(env, exports, name, call##_of_js);
#define EXPORT_CLASS(name, define) napi_set_named_property(env, exports, name, define(env));
  AGENT_CALLS(EXPORT_CALL)
  AGENT_FUNCTIONS(EXPORT_FUNCTION)
  AGENT_FILE_CALLS(EXPORT_FILE_CALL)
  AGENT_CLASSES(EXPORT_CLASS)
  return exports;
}
