/*
 * Carries out starts: one thread for each that is under way, because chdir or execve may hang for ever (a dead network file
 * system) and must not hold up others.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clone.h"
#include "spawn.h"

/*
 * The child runs on this part of the thread's stack; its calls are shallow. The rest is for the thread itself and the C
 * library's thread data.
 */
enum { CHILD_STACK_BYTES = 32 * 1024, THREAD_STACK_BYTES = 192 * 1024 };

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
  if (open_streams(job) < 0) return;
  int pid = start_child(job, stack);
  if (pid >= 0) {
    settle(job, pid);
  } else {
    job->step = "clone";
    job->error = errno;
  }
  /* Otherwise no stream would ever end. */
  close_their_streams(job);
  if (job->error != 0) close_our_streams(job);
}

static void *thread_main(void *job) {
  run_job(job);
  deliver_job(job);
  return NULL;
}

/* The thread starts with all signals blocked, and so does the child: Node's handlers must not run there. */
int run_on_thread(struct spawn_job *job) {
  pthread_attr_t attributes;
  pthread_t id;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&id, &attributes, thread_main, job);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}
