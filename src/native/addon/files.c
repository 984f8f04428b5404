/*
 * Entries of open folders. The folder is named by its descriptor, so that nobody can swap it between two calls. Each
 * function runs on a libuv thread, since a file system may hang, and resolves with 0, a descriptor or a negative errno.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "values.h"

enum { ATTEMPTS = 16 };

struct files_job {
  napi_async_work work;
  napi_deferred deferred;
  int (*run)(struct files_job *job);
  int folder, fd, flags, mode;
  uint64_t resolve;
  int result;
  char *name, *other;
  char bytes[];
};

static int result_of(long result) { return result < 0 ? -errno : (int)result; }

static void run_on_thread(napi_env env, void *data) {
  (void)env;
  struct files_job *job = data;
  job->result = job->run(job);
}

static void finish(napi_env env, napi_status status, void *data) {
  struct files_job *job = data;
  napi_resolve_deferred(env, job->deferred, from_int(env, status == napi_ok ? job->result : -ECANCELED));
  napi_delete_async_work(env, job->work);
  free(job);
}

/* A job with copies of up to two byte strings; NULL: out of memory. */
static struct files_job *new_job(napi_env env, napi_value name, napi_value other) {
  void *first = NULL, *second = NULL;
  size_t first_length = 0, second_length = 0;
  napi_get_buffer_info(env, name, &first, &first_length);
  if (other != NULL) napi_get_buffer_info(env, other, &second, &second_length);
  struct files_job *job = calloc(1, sizeof *job + first_length + second_length + 2);
  if (job == NULL) return NULL;
  job->name = job->bytes;
  job->other = job->bytes + first_length + 1;
  if (first_length > 0) memcpy(job->name, first, first_length);
  if (second_length > 0) memcpy(job->other, second, second_length);
  return job;
}

static napi_value queue(napi_env env, struct files_job *job, int (*run)(struct files_job *), const char *what) {
  napi_value promise = NULL, name = NULL;
  job->run = run;
  napi_create_promise(env, &job->deferred, &promise);
  napi_create_string_utf8(env, what, NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, run_on_thread, finish, job, &job->work);
  napi_queue_async_work(env, job->work);
  return promise;
}

/* EAGAIN: a folder was renamed while the kernel looked up "..", so it could not tell whether the path escapes. */
static int run_open(struct files_job *job) {
  int flags = job->flags | O_CLOEXEC;
  if (job->resolve == 0) return result_of(openat(job->folder, job->name, flags, job->mode));
  struct open_how how = {.resolve = job->resolve};
  how.flags = (unsigned long long)flags;
  how.mode = (unsigned long long)job->mode;
  long fd = -1;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    fd = syscall(SYS_openat2, job->folder, job->name, &how, sizeof how);
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return result_of(fd);
}

/* openIn(folder, path, flags, mode, resolve): openat(2), or openat2(2) where `resolve` restricts the way. */
napi_value agent_open_in(napi_env env, napi_callback_info info) {
  napi_value args[5];
  get_arguments(env, info, 5, args);
  struct files_job *job = new_job(env, args[1], NULL);
  if (job == NULL) return NULL;
  job->folder = to_int(env, args[0]);
  job->flags = to_int(env, args[2]);
  job->mode = to_int(env, args[3]);
  job->resolve = (uint64_t)to_int(env, args[4]);
  return queue(env, job, run_open, "openIn");
}

static int link_descriptor(int fd, int folder, const char *name) {
  char descriptor[sizeof "/proc/self/fd/-2147483648"];
  snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", fd);
  int result = linkat(fd, "", folder, name, AT_EMPTY_PATH);
  /* ENOENT also means: no privilege to link by descriptor alone (open(2), O_TMPFILE). */
  if (result < 0 && errno == ENOENT) result = linkat(AT_FDCWD, descriptor, folder, name, AT_SYMLINK_FOLLOW);
  return result_of(result);
}

/*
 * linkat(2) cannot replace a file, rename(2) can: so link under a temporary name, then rename. Both in one job, because
 * the temporary name stays behind if the agent is killed between the two.
 */
static int run_place(struct files_job *job) {
  int result = link_descriptor(job->fd, job->folder, job->name);
  if (result != -EEXIST || job->other[0] == '\0') return result;
  result = link_descriptor(job->fd, job->folder, job->other);
  if (result < 0) return result;
  result = result_of(renameat(job->folder, job->other, job->folder, job->name));
  if (result < 0) unlinkat(job->folder, job->other, 0);
  return result;
}

/*
 * placeIn(fd, folder, name, temporary): gives an open file that name. An entry of that name is replaced, through the
 * temporary name; with an empty temporary name the result is -EEXIST instead.
 */
napi_value agent_place_in(napi_env env, napi_callback_info info) {
  napi_value args[4];
  get_arguments(env, info, 4, args);
  struct files_job *job = new_job(env, args[2], args[3]);
  if (job == NULL) return NULL;
  job->fd = to_int(env, args[0]);
  job->folder = to_int(env, args[1]);
  return queue(env, job, run_place, "placeIn");
}

static int run_move(struct files_job *job) {
  if (job->flags == 0) return result_of(renameat(job->folder, job->name, job->folder, job->other));
  int result = result_of(linkat(job->folder, job->name, job->folder, job->other, 0));
  if (result == 0) unlinkat(job->folder, job->name, 0);
  return result;
}

/* moveIn(folder, from, to, exclusive): renames an entry; `exclusive` refuses to replace another. */
napi_value agent_move_in(napi_env env, napi_callback_info info) {
  napi_value args[4];
  bool exclusive = false;
  get_arguments(env, info, 4, args);
  struct files_job *job = new_job(env, args[1], args[2]);
  if (job == NULL) return NULL;
  job->folder = to_int(env, args[0]);
  napi_get_value_bool(env, args[3], &exclusive);
  job->flags = exclusive;
  return queue(env, job, run_move, "moveIn");
}

static int run_make_folder(struct files_job *job) { return result_of(mkdirat(job->folder, job->name, 0700)); }

static int run_remove(struct files_job *job) { return result_of(unlinkat(job->folder, job->name, job->flags)); }

/* makeFolderIn(folder, name): mode 0700. */
napi_value agent_make_folder_in(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  struct files_job *job = new_job(env, args[1], NULL);
  if (job == NULL) return NULL;
  job->folder = to_int(env, args[0]);
  return queue(env, job, run_make_folder, "makeFolderIn");
}

/* removeIn(folder, name, isFolder): a folder only if it is empty. */
napi_value agent_remove_in(napi_env env, napi_callback_info info) {
  napi_value args[3];
  bool is_folder = false;
  get_arguments(env, info, 3, args);
  struct files_job *job = new_job(env, args[1], NULL);
  if (job == NULL) return NULL;
  job->folder = to_int(env, args[0]);
  napi_get_value_bool(env, args[2], &is_folder);
  job->flags = is_folder ? AT_REMOVEDIR : 0;
  return queue(env, job, run_remove, "removeIn");
}

/*
 * targetOf(fd): target of a symbolic link opened with O_PATH and O_NOFOLLOW, or a negative errno. Runs on the calling
 * thread: the inode is in memory, and on nearly all file systems the target with it.
 */
napi_value agent_target_of(napi_env env, napi_callback_info info) {
  napi_value fd, target = NULL;
  char bytes[4096];
  get_arguments(env, info, 1, &fd);
  ssize_t length = readlinkat(to_int(env, fd), "", bytes, sizeof bytes);
  if (length < 0) return from_int(env, -errno);
  napi_create_buffer_copy(env, (size_t)length, bytes, NULL, &target);
  return target;
}
