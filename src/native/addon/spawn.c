#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clone.h"
#include "spawn.h"
#include "values.h"

/*
 * The child runs on this part of the thread's stack; its calls are shallow. The rest is for the thread itself and the C
 * library's thread data.
 */
enum { CHILD_STACK_BYTES = 32 * 1024, THREAD_STACK_BYTES = 192 * 1024 };

/* A NULL-terminated array of the strings in a block of NUL-terminated bytes; one allocation. NULL: out of memory. */
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

static void disown(struct spawn_job *job) {
  if (--job->owners > 0) return;
  pthread_mutex_destroy(&job->lock);
  free(job);
}

static void free_request(struct spawn_job *job) {
  free(job->candidates);
  free(job->args);
  free(job->env);
  free(job->cwd);
  free(job->groups);
}

static bool read_identity(napi_env env, napi_value options, struct spawn_job *job) {
  void *data = NULL;
  size_t count = 0;
  double uid = -1, gid = -1;
  napi_get_value_double(env, property(env, options, "uid"), &uid);
  napi_get_value_double(env, property(env, options, "gid"), &gid);
  napi_get_typedarray_info(env, property(env, options, "groups"), NULL, &count, &data, NULL, NULL);
  job->has_identity = uid >= 0;
  job->uid = job->has_identity ? (uid_t)uid : 0;
  job->gid = job->has_identity ? (gid_t)gid : 0;
  job->group_count = count;
  job->groups = malloc((count + 1) * sizeof *job->groups);
  if (job->groups != NULL && count > 0) memcpy(job->groups, data, count * sizeof *job->groups);
  return job->groups != NULL;
}

/* Node raised its own soft limit. The child gets the requested one, at most the hard limit. */
static void read_limit(napi_env env, napi_value options, struct spawn_job *job) {
  int32_t wanted = to_int(env, property(env, options, "openFilesLimit"));
  getrlimit(RLIMIT_NOFILE, &job->open_files);
  job->open_files.rlim_cur = (rlim_t)wanted < job->open_files.rlim_max ? (rlim_t)wanted : job->open_files.rlim_max;
}

/* Absent: the child keeps the agent's. */
static void read_standing(napi_env env, napi_value options, struct spawn_job *job) {
  napi_value score = property(env, options, "oomScoreAdj"), priority = property(env, options, "priority");
  job->resets_priority = napi_get_value_int32(env, priority, &job->priority) == napi_ok;
  napi_get_value_string_utf8(env, score, job->oom_score, sizeof job->oom_score, NULL);
}

static bool read_request(napi_env env, napi_value options, struct spawn_job *job) {
  napi_value stdio = property(env, options, "stdio"), fd;
  for (uint32_t i = 0; i < 3; i++) {
    napi_get_element(env, stdio, i, &fd);
    job->stdio[i] = to_int(env, fd);
  }
  job->session = (enum spawn_session)to_int(env, property(env, options, "session"));
  job->cgroup_fd = to_int(env, property(env, options, "cgroupFd"));
  read_limit(env, options, job);
  read_standing(env, options, job);
  job->candidates = strings_of(env, property(env, options, "candidates"));
  job->args = strings_of(env, property(env, options, "args"));
  job->env = strings_of(env, property(env, options, "env"));
  job->cwd = strings_of(env, property(env, options, "cwd"));
  return read_identity(env, options, job) && job->candidates && job->args && job->env && job->cwd;
}

static void reap(pid_t pid) {
  siginfo_t end;
  while (waitid(P_PID, (id_t)pid, &end, WEXITED) < 0 && errno == EINTR) continue;
}

/* Records the outcome once the child runs the command or is dead, and reaps a dead one. */
static void settle(struct spawn_job *job, int pid) {
  pthread_mutex_lock(&job->lock);
  job->settled = true;
  pthread_mutex_unlock(&job->lock);
  bool aborted = atomic_load(&job->aborted);
  if (job->error == 0) {
    bool became_command = strcmp(job->step, "execve") == 0;
    if (became_command && !aborted) return;
    /* The abort came late and the command runs already: kill its group, whose id is the child's. */
    if (became_command) kill(-pid, SIGKILL);
    job->step = "killed";
    job->error = aborted ? ECANCELED : EINTR;
  }
  reap(pid);
}

/*
 * Starts the child inside its cgroup: moving it there afterwards waits milliseconds for an RCU grace period. Where the
 * kernel refuses, the child moves itself.
 */
static int start_child(struct spawn_job *job, char *stack) {
  int flags = CLONE_VM | CLONE_VFORK;
  if (job->cgroup_fd >= 0) {
    int pid = clone_into_cgroup(spawn_child, stack, CHILD_STACK_BYTES, flags, job, &job->pid, job->cgroup_fd);
    if (pid >= 0 || errno == EAGAIN || errno == ENOMEM) return pid;
    job->joins_cgroup = true;
  }
  return clone(spawn_child, stack + CHILD_STACK_BYTES, flags | CLONE_PARENT_SETTID | SIGCHLD, job, &job->pid);
}

/* Returns when the child has become the command or failed: CLONE_VFORK suspends this thread alone. */
static void run_job(struct spawn_job *job) {
  _Alignas(16) char stack[CHILD_STACK_BYTES];
  int pid = start_child(job, stack);
  if (pid < 0) {
    job->step = "clone";
    job->error = errno;
    return;
  }
  settle(job, pid);
}

struct spawn_thread {
  struct spawn_job *job;
  napi_threadsafe_function deliver;
};

/* One thread a start: chdir or execve may hang for ever (a dead network file system) and must not hold up others. */
static void *thread_main(void *data) {
  struct spawn_thread thread = *(struct spawn_thread *)data;
  free(data);
  run_job(thread.job);
  napi_call_threadsafe_function(thread.deliver, thread.job, napi_tsfn_nonblocking);
  napi_release_threadsafe_function(thread.deliver, napi_tsfn_release);
  return NULL;
}

/* The thread starts with all signals blocked, and so does the child: Node's handlers must not run there. */
static int start_thread(struct spawn_thread *thread) {
  pthread_attr_t attributes;
  pthread_t id;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&id, &attributes, thread_main, thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

static void deliver(napi_env env, napi_value callback, void *context, void *data) {
  struct spawn_job *job = data;
  (void)context;
  free_request(job);
  if (env != NULL) {
    napi_value undefined, args[3];
    napi_get_undefined(env, &undefined);
    args[0] = from_int(env, atomic_load(&job->pid));
    napi_create_string_utf8(env, job->step, NAPI_AUTO_LENGTH, &args[1]);
    args[2] = from_int(env, job->error);
    napi_call_function(env, undefined, callback, 3, args, NULL);
  }
  disown(job);
}

static void release_handle(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  disown(data);
}

/*
 * spawn(options, done): starts a child on a thread of its own and calls done(pid, step, errno) later; errno 0: it has
 * become the command. Returns a handle for abortSpawn, or undefined when memory ran out.
 */
napi_value agent_spawn(napi_env env, napi_callback_info info) {
  napi_value args[2], name, handle = NULL;
  get_arguments(env, info, 2, args);
  struct spawn_job *job = calloc(1, sizeof *job);
  struct spawn_thread *thread = malloc(sizeof *thread);
  if (job == NULL || thread == NULL || !read_request(env, args[0], job)) {
    if (job != NULL) free_request(job);
    free(job);
    free(thread);
    return NULL;
  }
  pthread_mutex_init(&job->lock, NULL);
  job->owners = 2;
  job->step = "prepare";
  thread->job = job;
  napi_create_string_utf8(env, "spawn", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, args[1], NULL, name, 0, 1, NULL, NULL, NULL, deliver, &thread->deliver);
  napi_create_external(env, job, release_handle, NULL, &handle);
  napi_threadsafe_function result = thread->deliver;
  /* The running thread owns the job: write to it here only if the thread could not be started. */
  int error = start_thread(thread);
  if (error != 0) {
    job->error = error;
    free(thread);
    napi_call_threadsafe_function(result, job, napi_tsfn_nonblocking);
    napi_release_threadsafe_function(result, napi_tsfn_release);
  }
  return handle;
}

/*
 * abortSpawn(handle): kills the child if it is still starting; the outcome is then the step "killed". Afterwards it does
 * nothing: the id may belong to another process.
 */
napi_value agent_abort_spawn(napi_env env, napi_callback_info info) {
  napi_value handle;
  void *data = NULL;
  get_arguments(env, info, 1, &handle);
  if (napi_get_value_external(env, handle, &data) != napi_ok || data == NULL) return NULL;
  struct spawn_job *job = data;
  pthread_mutex_lock(&job->lock);
  if (!job->settled) {
    atomic_store(&job->aborted, true);
    /* Id still 0: the child has not run yet and will see the flag first. */
    if (atomic_load(&job->pid) > 1) kill(atomic_load(&job->pid), SIGKILL);
  }
  pthread_mutex_unlock(&job->lock);
  return NULL;
}
