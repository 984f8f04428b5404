#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "values.h"

struct link_job {
  napi_async_work work;
  napi_deferred deferred;
  int fd;
  int result;
  char path[];
};

/* Runs on a thread of libuv's: the file system may take its time. */
static void link_on_thread(napi_env env, void *data) {
  (void)env;
  struct link_job *job = data;
  char descriptor[sizeof "/proc/self/fd/-2147483648"];
  snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", job->fd);
  int result = linkat(job->fd, "", AT_FDCWD, job->path, AT_EMPTY_PATH);
  /* ENOENT is also what the kernel says to those who may not link by descriptor alone (open(2), O_TMPFILE). */
  if (result < 0 && errno == ENOENT) result = linkat(AT_FDCWD, descriptor, AT_FDCWD, job->path, AT_SYMLINK_FOLLOW);
  job->result = result < 0 ? -errno : 0;
}

static void finish_link(napi_env env, napi_status status, void *data) {
  struct link_job *job = data;
  napi_resolve_deferred(env, job->deferred, from_int(env, status == napi_ok ? job->result : -ECANCELED));
  napi_delete_async_work(env, job->work);
  free(job);
}

/* linkDescriptor(fd, path): a promise of 0 or a negative errno; gives the open file that path (linkat(2)). */
napi_value agent_link_descriptor(napi_env env, napi_callback_info info) {
  napi_value args[2], promise = NULL, name = NULL;
  void *path = NULL;
  size_t length = 0;
  get_arguments(env, info, 2, args);
  napi_get_buffer_info(env, args[1], &path, &length);
  struct link_job *job = calloc(1, sizeof *job + length + 1);
  if (job == NULL) return NULL;
  job->fd = to_int(env, args[0]);
  if (length > 0) memcpy(job->path, path, length);
  napi_create_promise(env, &job->deferred, &promise);
  napi_create_string_utf8(env, "linkDescriptor", NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, link_on_thread, finish_link, job, &job->work);
  napi_queue_async_work(env, job->work);
  return promise;
}
