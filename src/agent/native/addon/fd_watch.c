#include <stdlib.h>
#include <uv.h>

#include "values.h"

/*
 * An additional bit of the callback's argument, besides UV_READABLE and UV_WRITABLE: the descriptor is in an error
 * state, so libuv has stopped the watch.
 */
enum { FAILED = 4 };

/*
 * class FdWatch(fd, callback): a thin wrapper of uv_poll that owns a descriptor. It only reports events. Reading is
 * left to the owner, so that nothing is read before the owner is ready for it.
 */
struct fd_watch {
  uv_poll_t poll;
  uv_timer_t delay;
  int fd;
  uint32_t delay_ms; /* delay between an event and its report; 0 means no delay */
  bool closed;
  int handles; /* number of uv handles that are not closed yet */
  napi_env env;
  napi_ref self;
  napi_ref callback;
  napi_async_context context;
};

static void report(struct fd_watch *watch, int events) {
  napi_handle_scope scope;
  napi_value self, callback, argument, exception;
  if (watch->closed || napi_open_handle_scope(watch->env, &scope) != napi_ok) return;
  napi_get_reference_value(watch->env, watch->self, &self);
  napi_get_reference_value(watch->env, watch->callback, &callback);
  argument = from_int(watch->env, events);
  if (napi_make_callback(watch->env, watch->context, self, callback, 1, &argument, NULL) == napi_pending_exception &&
      napi_get_and_clear_last_exception(watch->env, &exception) == napi_ok)
    napi_fatal_exception(watch->env, exception);
  napi_close_handle_scope(watch->env, scope);
}

static void on_delay(uv_timer_t *delay) { report(delay->data, UV_READABLE); }

static void on_events(uv_poll_t *poll, int status, int events) {
  struct fd_watch *watch = poll->data;
  /*
   * libuv reports an error state, such as a pipe without a reader, by a negative status, and stops the watch. The watch
   * then reports both events to its owner, because the owner's next read or write returns the error.
   */
  if (status < 0) events = UV_READABLE | UV_WRITABLE | FAILED;
  if (watch->delay_ms == 0) {
    report(watch, events);
    return;
  }
  uv_poll_stop(poll);
  uv_timer_start(&watch->delay, on_delay, watch->delay_ms, 0);
}

static void on_handle_closed(uv_handle_t *handle) {
  struct fd_watch *watch = handle->data;
  napi_handle_scope scope;
  watch->handles -= 1;
  /* If `self` is NULL, the Node environment has ended, so Node-API must not be called. */
  if (watch->handles > 0 || watch->self == NULL) return;
  napi_open_handle_scope(watch->env, &scope);
  napi_async_destroy(watch->env, watch->context);
  napi_delete_reference(watch->env, watch->callback);
  /* From now on the object may be garbage collected; `finalize` then frees the memory. */
  napi_reference_unref(watch->env, watch->self, NULL);
  napi_close_handle_scope(watch->env, scope);
}

static void finalize(napi_env env, void *data, void *hint) {
  struct fd_watch *watch = data;
  (void)hint;
  /* napi_wrap returned a strong reference, which must be deleted. */
  napi_delete_reference(env, watch->self);
  watch->self = NULL;
  if (watch->handles == 0) {
    free(watch);
    return;
  }
  /* If Node's environment ends while the watch is open, the memory is not freed, because libuv still uses it. */
  if (!watch->closed) {
    uv_poll_stop(&watch->poll);
    uv_timer_stop(&watch->delay);
  }
  watch->closed = true;
}

static napi_value construct(napi_env env, napi_callback_info info) {
  napi_value args[2], self, name;
  size_t count = 2;
  uv_loop_t *loop;
  napi_get_cb_info(env, info, &count, args, &self, NULL);
  napi_get_uv_event_loop(env, &loop);
  struct fd_watch *watch = calloc(1, sizeof *watch);
  int status = watch == NULL ? UV_ENOMEM : uv_poll_init(loop, &watch->poll, to_int(env, args[0]));
  if (status < 0) {
    free(watch);
    napi_throw_error(env, uv_err_name(status), "the descriptor cannot be watched");
    return NULL;
  }
  uv_timer_init(loop, &watch->delay);
  watch->poll.data = watch->delay.data = watch;
  watch->handles = 2;
  watch->fd = to_int(env, args[0]);
  watch->env = env;
  napi_create_string_utf8(env, "FdWatch", NAPI_AUTO_LENGTH, &name);
  napi_async_init(env, NULL, name, &watch->context);
  napi_create_reference(env, args[1], 1, &watch->callback);
  napi_wrap(env, self, watch, finalize, NULL, &watch->self);
  /* Keeps the object alive until `close`. If it were garbage collected earlier, the descriptor would leak. */
  napi_reference_ref(env, watch->self, NULL);
  return self;
}

/* set(mask): sets the events to report: 1 for readable, 2 for writable, 3 for both, 0 for none. */
static napi_value set(napi_env env, napi_callback_info info) {
  napi_value mask;
  struct fd_watch *watch = get_object(env, info, 1, &mask);
  if (watch == NULL || watch->closed) return from_int(env, -EBADF);
  int events = to_int(env, mask);
  return from_int(env, events == 0 ? uv_poll_stop(&watch->poll) : uv_poll_start(&watch->poll, events, on_events));
}

/* readableOnce(delayMs): reports the next readable event once, delayMs after it has occurred. */
static napi_value readable_once(napi_env env, napi_callback_info info) {
  napi_value delay;
  struct fd_watch *watch = get_object(env, info, 1, &delay);
  if (watch == NULL || watch->closed) return from_int(env, -EBADF);
  watch->delay_ms = (uint32_t)to_int(env, delay);
  return from_int(env, uv_poll_start(&watch->poll, UV_READABLE, on_events));
}

/* close(): stops watching and closes the descriptor. Later calls do nothing. */
static napi_value close_watch(napi_env env, napi_callback_info info) {
  struct fd_watch *watch = get_object(env, info, 0, NULL);
  if (watch == NULL || watch->closed) return NULL;
  watch->closed = true;
  uv_close((uv_handle_t *)&watch->poll, on_handle_closed);
  uv_close((uv_handle_t *)&watch->delay, on_handle_closed);
  close(watch->fd);
  return NULL;
}

napi_value agent_fd_watch_class(napi_env env) {
  const napi_property_descriptor methods[] = {METHOD("set", set), METHOD("readableOnce", readable_once),
                                              METHOD("close", close_watch)};
  return define_class(env, "FdWatch", construct, 3, methods);
}
