#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn.h"
#include "values.h"

/* List of the jobs whose outcome has not been delivered. Only the JavaScript thread uses the list. */
static struct spawn_job *starting;
static napi_threadsafe_function settled;

/*
 * Splits a block of NUL-terminated strings into a NULL-terminated array. Array and strings are one allocation. Returns
 * NULL if there is no memory.
 */
static char **strings_of(napi_env env, napi_value block) {
  void *bytes = NULL;
  size_t length = 0, count = 0;
  napi_get_buffer_info(env, block, &bytes, &length);
  for (size_t i = 0; i < length; i++) count += ((char *)bytes)[i] == '\0';
  char **strings = malloc((count + 1) * sizeof *strings + length);
  if (strings == NULL) return NULL;
  char *next = (char *)(strings + count + 1);
  if (length > 0) memcpy(next, bytes, length);
  for (size_t i = 0; i < count; i++) {
    strings[i] = next;
    next += strlen(next) + 1;
  }
  strings[count] = NULL;
  return strings;
}

static void free_job(struct spawn_job *job) {
  pthread_mutex_destroy(&job->lock);
  free(job->files);
  free(job->args);
  free(job->env);
  free(job->cwd);
  free(job->groups);
  free(job);
}

/* Reads a StdioPlan (domain/ports/processes.ts). */
static void read_streams(napi_env env, napi_value plan, struct spawn_job *job) {
  char kind[sizeof "terminal"] = "";
  napi_get_value_string_utf8(env, property(env, plan, "kind"), kind, sizeof kind, NULL);
  job->streams = strcmp(kind, "pipes") == 0      ? STREAMS_PIPES
                 : strcmp(kind, "terminal") == 0 ? STREAMS_TERMINAL
                                                 : STREAMS_INHERITED;
  job->has_input = to_bool(env, property(env, plan, "stdin"));
  job->pipes_outputs = to_bool(env, property(env, plan, "pipesOutputs"));
  get_int(env, plan, "cols", &job->cols);
  get_int(env, plan, "rows", &job->rows);
  job->iutf8 = to_bool(env, property(env, plan, "iutf8"));
}

/*
 * Reads an Identity (domain/ports/processes.ts); undefined means the agent's identity. Returns false if there is no
 * memory.
 */
static bool read_identity(napi_env env, napi_value identity, struct spawn_job *job) {
  napi_valuetype type = napi_undefined;
  int32_t uid = 0, gid = 0, group = 0;
  uint32_t count = 0;
  napi_typeof(env, identity, &type);
  job->has_identity = type == napi_object;
  if (!job->has_identity) return true;
  get_int(env, identity, "uid", &uid);
  get_int(env, identity, "gid", &gid);
  job->uid = (uid_t)uid;
  job->gid = (gid_t)gid;
  napi_value groups = property(env, identity, "groups");
  napi_get_array_length(env, groups, &count);
  job->group_count = count;
  job->groups = malloc((count + 1) * sizeof *job->groups);
  for (uint32_t i = 0; job->groups != NULL && i < count; i++) {
    napi_value element = NULL;
    napi_get_element(env, groups, i, &element);
    napi_get_value_int32(env, element, &group);
    job->groups[i] = (gid_t)group;
  }
  return job->groups != NULL;
}

static void read_settings(napi_env env, napi_value settings, struct spawn_job *job) {
  int32_t wanted = 0, score = 0;
  job->cgroup_fd = -1;
  get_int(env, settings, "cgroupFd", &job->cgroup_fd);
  job->resets_priority = get_int(env, settings, "priority", &job->priority);
  if (get_int(env, settings, "oomScoreAdj", &score)) snprintf(job->oom_score, sizeof job->oom_score, "%d", (int)score);
  /*
   * The child does not inherit the agent's soft limit, which Node has raised. It gets the requested limit, but at most
   * the hard limit.
   */
  get_int(env, settings, "openFilesLimit", &wanted);
  getrlimit(RLIMIT_NOFILE, &job->open_files);
  rlim_t most = job->open_files.rlim_max;
  job->open_files.rlim_cur = (rlim_t)wanted < most ? (rlim_t)wanted : most;
}

/* Copies a SpawnBlock, because the thread reads it while JavaScript continues. Returns false if there is no memory. */
static bool read_block(napi_env env, napi_value block, struct spawn_job *job) {
  job->files = strings_of(env, property(env, block, "files"));
  job->args = strings_of(env, property(env, block, "args"));
  job->env = strings_of(env, property(env, block, "env"));
  job->cwd = strings_of(env, property(env, block, "cwd"));
  read_streams(env, property(env, block, "stdio"), job);
  return read_identity(env, property(env, block, "identity"), job) && job->files && job->args && job->env && job->cwd;
}

/* Removes the job from the list. When the list is empty, the queue `settled` no longer keeps the event loop alive. */
static void forget(napi_env env, struct spawn_job *job) {
  struct spawn_job **at = &starting;
  while (*at != job) at = &(*at)->next;
  *at = job->next;
  if (starting == NULL && env != NULL) napi_unref_threadsafe_function(env, settled);
}

static void deliver(napi_env env, napi_value unused, void *context, void *data) {
  struct spawn_job *job = data;
  (void)unused;
  (void)context;
  forget(env, job);
  if (env != NULL) {
    napi_value undefined, done, args[6], exception;
    napi_get_undefined(env, &undefined);
    napi_get_reference_value(env, job->done, &done);
    napi_delete_reference(env, job->done);
    args[0] = from_int(env, job->error);
    args[1] = undefined;
    if (job->error != 0) napi_create_string_utf8(env, job->step, NAPI_AUTO_LENGTH, &args[1]);
    args[2] = from_int(env, atomic_load(&job->pid));
    for (int i = 0; i < 3; i++) args[3 + i] = from_int(env, job->agent_ends[i]);
    if (napi_call_function(env, undefined, done, 6, args, NULL) == napi_pending_exception &&
        napi_get_and_clear_last_exception(env, &exception) == napi_ok)
      napi_fatal_exception(env, exception);
  }
  free_job(job);
}

/*
 * Passes a settled job to the JavaScript thread. `settled` must then be released once, because agent_spawn has acquired
 * it for this job. If the call succeeds, this function releases it. The call fails if the JavaScript thread has ended,
 * and Node has then already released it.
 */
void deliver_job(struct spawn_job *job) {
  if (napi_call_threadsafe_function(settled, job, napi_tsfn_nonblocking) == napi_ok)
    napi_release_threadsafe_function(settled, napi_tsfn_release);
}

/*
 * Creates the function that delivers jobs to JavaScript. All jobs share it, because each such function needs a libuv
 * handle.
 */
static bool open_delivery(napi_env env) {
  napi_value name;
  if (settled != NULL) return true;
  napi_create_string_utf8(env, "spawn", NAPI_AUTO_LENGTH, &name);
  return napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, NULL, NULL, NULL, deliver, &settled) == napi_ok;
}

napi_value agent_spawn(napi_env env, napi_callback_info info) {
  static int last_number;
  napi_value args[3];
  get_arguments(env, info, 3, args);
  struct spawn_job *job = calloc(1, sizeof *job);
  if (job == NULL) return from_int(env, 0);
  pthread_mutex_init(&job->lock, NULL);
  job->step = "prepare";
  for (int i = 0; i < 3; i++) job->agent_ends[i] = job->child_ends[i] = -1;
  read_settings(env, args[1], job);
  if (!read_block(env, args[0], job) || !open_delivery(env)) {
    free_job(job);
    return from_int(env, 0);
  }
  if (napi_create_reference(env, args[2], 1, &job->done) != napi_ok) {
    free_job(job);
    return from_int(env, 0);
  }
  if (starting == NULL) napi_ref_threadsafe_function(env, settled);
  job->next = starting;
  starting = job;
  int number = job->number = last_number = last_number % INT32_MAX + 1;
  napi_acquire_threadsafe_function(settled);
  /*
   * Once the thread runs, only the thread may change the job. If it could not be started, this function completes the
   * job.
   */
  int error = start_thread(run_job, job, SPAWN_STACK_BYTES);
  if (error != 0) {
    job->error = error;
    deliver_job(job);
  }
  return from_int(env, number);
}

/*
 * Aborts a start by killing the child. Does nothing if the start has settled, because the child's pid may then have
 * been reused. Returns what the child was executing: 1 for chdir, 2 + n for execve of files[n], 0 for anything else.
 */
long agent_abort_spawn(int number) {
  struct spawn_job *job = starting;
  long at = 0;
  while (job != NULL && job->number != number) job = job->next;
  if (job == NULL) return 0;
  pthread_mutex_lock(&job->lock);
  if (!job->settled) {
    atomic_store(&job->aborted, true);
    if (strcmp(job->step, "chdir") == 0) at = 1;
    if (strcmp(job->step, "execve") == 0) at = 2 + job->candidate;
    /*
     * If the pid is still 0, the child has not run yet. It need not be killed, because it first checks the flag
     * `aborted`.
     */
    if (atomic_load(&job->pid) > 1) kill(atomic_load(&job->pid), SIGKILL);
  }
  pthread_mutex_unlock(&job->lock);
  return at;
}
