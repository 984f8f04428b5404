#include "file_job.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

enum { ATTEMPTS = 16 };

struct file_job {
  napi_async_work work;
  napi_deferred deferred;
  file_call *call;
  struct argument args[ANSWER + 1];
  int result;
};

static void run_on_thread(napi_env env, void *data) {
  (void)env;
  struct file_job *job = data;
  job->result = job->call(job->args);
  if (job->result < 0) job->result = -errno;
}

static void settle(napi_env env, struct file_job *job, int result) {
  napi_value value = from_int(env, result);
  const struct argument *answer = &job->args[ANSWER];
  if (result >= 0 && answer->bytes != NULL) napi_create_buffer_copy(env, answer->length, answer->bytes, NULL, &value);
  if (answer->number == SECRET && answer->bytes != NULL) explicit_bzero(answer->bytes, answer->length);
  napi_resolve_deferred(env, job->deferred, value);
  for (int i = 0; i <= ANSWER; i++) free(job->args[i].bytes);
  free(job);
}

static void finish(napi_env env, napi_status status, void *data) {
  struct file_job *job = data;
  napi_delete_async_work(env, job->work);
  settle(env, job, status == napi_ok ? job->result : -ECANCELED);
}

/* Copies an argument. Returns false if there is no memory. */
static bool read_argument(napi_env env, napi_value value, struct argument *argument) {
  void *bytes = NULL;
  argument->number = to_bool(env, value) ? 1 : to_int(env, value);
  if (napi_get_buffer_info(env, value, &bytes, &argument->length) != napi_ok) return true;
  argument->bytes = calloc(1, argument->length + 1);
  if (argument->bytes != NULL && argument->length > 0) memcpy(argument->bytes, bytes, argument->length);
  return argument->bytes != NULL;
}

napi_value on_thread(napi_env env, napi_callback_info info, file_call *call) {
  napi_value values[ANSWER], promise = NULL, name = NULL;
  bool complete = true;
  get_arguments(env, info, ANSWER, values);
  struct file_job *job = calloc(1, sizeof *job);
  if (job == NULL) return NULL;
  job->call = call;
  napi_create_promise(env, &job->deferred, &promise);
  for (int i = 0; i < ANSWER; i++) complete = complete && read_argument(env, values[i], &job->args[i]);
  if (!complete) {
    settle(env, job, -ENOMEM);
    return promise;
  }
  napi_create_string_utf8(env, "files", NAPI_AUTO_LENGTH, &name);
  bool is_made = napi_create_async_work(env, NULL, name, run_on_thread, finish, job, &job->work) == napi_ok;
  if (is_made && napi_queue_async_work(env, job->work) == napi_ok) return promise;
  if (is_made) napi_delete_async_work(env, job->work);
  settle(env, job, -ENOMEM);
  return promise;
}

bool append(struct argument *answer, size_t *room, const void *bytes, size_t count) {
  if (answer->length + count > *room) {
    size_t more = *room * 2 + count;
    char *grown = realloc(answer->bytes, more);
    if (grown == NULL) return false;
    answer->bytes = grown;
    *room = more;
  }
  memcpy(answer->bytes + answer->length, bytes, count);
  answer->length += count;
  return true;
}

/* openat2(2) fails with EAGAIN if a concurrent rename disturbs its check of "..". */
int open_resolved(int directory, const char *path, int flags, int mode, int resolve) {
  struct open_how how = {.resolve = (unsigned long long)resolve};
  how.flags = (unsigned long long)(flags | O_CLOEXEC);
  how.mode = (unsigned long long)mode;
  int fd = -1;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return fd;
}

struct descriptor_path descriptor_path(int fd) {
  struct descriptor_path path;
  snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", fd);
  return path;
}
