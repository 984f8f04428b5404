/*
 * Entries of open folders. The folder is named by its descriptor, so that nobody can swap it between two calls. Each
 * function runs on a libuv thread, since a file system may hang, and resolves with 0, a descriptor or a negative errno.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "values.h"

enum { MOST_ARGUMENTS = 5, ATTEMPTS = 16 };

/* A number, or a boolean as 0 or 1; or a copy of bytes, with a NUL behind them. */
struct argument {
  int number;
  char *name;
};

/* What a thread does, with the arguments of the call. Returns -1 with errno on failure. */
typedef int file_call(const struct argument *args);

struct files_job {
  napi_async_work work;
  napi_deferred deferred;
  file_call *call;
  struct argument args[MOST_ARGUMENTS];
  int result;
};

/* Into the second argument, which has room for any target. */
static int target_of(const struct argument *args) {
  return (int)readlinkat(args[0].number, "", args[1].name, PATH_MAX);
}

static void run_on_thread(napi_env env, void *data) {
  (void)env;
  struct files_job *job = data;
  job->result = job->call(job->args);
  if (job->result < 0) job->result = -errno;
}

static void settle(napi_env env, struct files_job *job, int result) {
  napi_value value = from_int(env, result);
  if (job->call == target_of && result >= 0)
    napi_create_buffer_copy(env, (size_t)result, job->args[1].name, NULL, &value);
  napi_resolve_deferred(env, job->deferred, value);
  for (int i = 0; i < MOST_ARGUMENTS; i++) free(job->args[i].name);
  free(job);
}

static void finish(napi_env env, napi_status status, void *data) {
  struct files_job *job = data;
  napi_delete_async_work(env, job->work);
  settle(env, job, status == napi_ok ? job->result : -ECANCELED);
}

/* False: out of memory. */
static bool read_argument(napi_env env, napi_value value, struct argument *argument) {
  void *bytes = NULL;
  size_t length = 0;
  argument->number = to_bool(env, value) ? 1 : to_int(env, value);
  if (napi_get_buffer_info(env, value, &bytes, &length) != napi_ok) return true;
  argument->name = calloc(1, length + 1);
  if (argument->name != NULL && length > 0) memcpy(argument->name, bytes, length);
  return argument->name != NULL;
}

static napi_value on_thread(napi_env env, napi_callback_info info, file_call *call) {
  napi_value values[MOST_ARGUMENTS], promise = NULL, name = NULL;
  bool complete = true;
  get_arguments(env, info, MOST_ARGUMENTS, values);
  struct files_job *job = calloc(1, sizeof *job);
  if (job == NULL) return NULL;
  job->call = call;
  napi_create_promise(env, &job->deferred, &promise);
  for (int i = 0; i < MOST_ARGUMENTS; i++) complete = complete && read_argument(env, values[i], &job->args[i]);
  if (call == target_of) complete = (job->args[1].name = malloc(PATH_MAX)) != NULL;
  if (!complete) {
    settle(env, job, -ENOMEM);
    return promise;
  }
  napi_create_string_utf8(env, "files", NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, run_on_thread, finish, job, &job->work);
  napi_queue_async_work(env, job->work);
  return promise;
}

/* EAGAIN: a folder was renamed while the kernel looked up "..", so it could not tell whether the path escapes. */
static int open_in(const struct argument *args) {
  int folder = args[0].number, flags = args[2].number | O_CLOEXEC, mode = args[3].number, resolve = args[4].number;
  const char *path = args[1].name;
  if (resolve == 0) return openat(folder, path, flags, mode);
  struct open_how how = {.resolve = (unsigned long long)resolve};
  how.flags = (unsigned long long)flags;
  how.mode = (unsigned long long)mode;
  int fd = -1;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return fd;
}

static int link_descriptor(int fd, int folder, const char *name) {
  char descriptor[sizeof "/proc/self/fd/-2147483648"];
  snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", fd);
  int result = linkat(fd, "", folder, name, AT_EMPTY_PATH);
  /* ENOENT also means: no privilege to link by descriptor alone (open(2), O_TMPFILE). */
  if (result < 0 && errno == ENOENT) result = linkat(AT_FDCWD, descriptor, folder, name, AT_SYMLINK_FOLLOW);
  return result;
}

/*
 * linkat(2) cannot replace a file, rename(2) can: so link under a temporary name, then rename. Both in one job, because
 * the temporary name stays behind if the agent is killed between the two.
 */
static int place_in(const struct argument *args) {
  int fd = args[0].number, folder = args[1].number;
  const char *name = args[2].name, *temporary = args[3].name;
  int result = link_descriptor(fd, folder, name);
  if (result == 0 || errno != EEXIST || temporary[0] == '\0') return result;
  if (link_descriptor(fd, folder, temporary) < 0) return -1;
  if (renameat(folder, temporary, folder, name) == 0) return 0;
  int error = errno;
  unlinkat(folder, temporary, 0);
  return refuse(error);
}

static int move_in(const struct argument *args) {
  int folder = args[0].number, exclusive = args[3].number;
  const char *from = args[1].name, *to = args[2].name;
  if (!exclusive) return renameat(folder, from, folder, to);
  int result = (int)syscall(SYS_renameat2, folder, from, folder, to, RENAME_NOREPLACE);
  if (result == 0 || (errno != EINVAL && errno != ENOSYS)) return result;
  /* Not every file system knows the flag. Two names for one file would be neither moved nor not moved. */
  if (linkat(folder, from, folder, to, 0) < 0) return -1;
  if (unlinkat(folder, from, 0) == 0) return 0;
  int error = errno;
  unlinkat(folder, to, 0);
  return refuse(error);
}

static int make_folder_in(const struct argument *args) { return mkdirat(args[0].number, args[1].name, 0700); }

static int remove_in(const struct argument *args) {
  return unlinkat(args[0].number, args[1].name, args[2].number ? AT_REMOVEDIR : 0);
}

/* openIn(folder, path, flags, mode, resolve) */
napi_value agent_open_in(napi_env env, napi_callback_info info) { return on_thread(env, info, open_in); }

/* placeIn(fd, folder, name, temporary) */
napi_value agent_place_in(napi_env env, napi_callback_info info) { return on_thread(env, info, place_in); }

/* moveIn(folder, from, to, exclusive) */
napi_value agent_move_in(napi_env env, napi_callback_info info) { return on_thread(env, info, move_in); }

/* makeFolderIn(folder, name) */
napi_value agent_make_folder_in(napi_env env, napi_callback_info info) { return on_thread(env, info, make_folder_in); }

/* removeIn(folder, name, isFolder) */
napi_value agent_remove_in(napi_env env, napi_callback_info info) { return on_thread(env, info, remove_in); }

/* targetOf(fd) */
napi_value agent_target_of(napi_env env, napi_callback_info info) { return on_thread(env, info, target_of); }
