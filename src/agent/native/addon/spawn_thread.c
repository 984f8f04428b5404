/*
 * Starts children, each on its own thread: chdir or execve may hang forever, and must not delay the start of other
 * children.
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "spawn.h"
#include "values.h"

/* The part of the thread's stack that the child uses. The child needs little, because its calls are not deep. */
enum { CHILD_STACK_BYTES = 32 * 1024 };

static void reap(pid_t pid) {
  siginfo_t end;
  while (waitid(P_PID, (id_t)pid, &end, WEXITED) < 0 && errno == EINTR) continue;
}

/*
 * Sets the OOM score of a command after execve, because its child process was not permitted to set it earlier. The
 * function retries for a while, because the command's files in /proc get their new owner only shortly after execve has
 * resumed this thread. It cannot set the score of a setuid program, whose files stay with root. Processes that the
 * command has already forked keep the old score.
 */
static void set_oom_score(const struct spawn_job *job, int pid) {
  enum { ATTEMPTS = 100, PAUSE_NS = 100 * 1000 };
  char path[sizeof "/proc/-2147483648/oom_score_adj"];
  int fd = -1;
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", pid);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 || errno != EACCES) break;
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  if (fd < 0) return;
  if (write(fd, job->oom_score, strlen(job->oom_score)) < 0) {
  }
  close(fd);
}

/* Records whether the child runs the command. Reaps the child if it is dead. */
static void settle(struct spawn_job *job, int pid) {
  pthread_mutex_lock(&job->lock);
  job->settled = true;
  pthread_mutex_unlock(&job->lock);
  bool aborted = atomic_load(&job->aborted);
  if (job->error == 0) {
    bool became_command = strcmp(job->step, "execve") == 0;
    if (became_command && !aborted) {
      if (job->parent_sets_oom_score) set_oom_score(job, pid);
      return;
    }
    /* The start was aborted, but the command already runs. Kill its process group, whose id is the child's pid. */
    if (became_command) kill(-pid, SIGKILL);
    job->step = "killed";
    job->error = aborted ? ECANCELED : EINTR;
  }
  reap(pid);
}

/*
 * Raw clone3(2), for which the C library has no wrapper. The child runs child(arg) on its own stack; child must not
 * return. Returns the pid or a negated errno.
 */
static long clone3(struct clone_args *request, int (*child)(void *), void *arg) {
#if defined(__x86_64__)
  long result;
  register int (*run)(void *) __asm__("r12") = child;
  register void *data __asm__("r13") = arg;
  __asm__ volatile("syscall\n\t"
                   "test %%rax, %%rax\n\t"
                   "jnz 1f\n\t"
                   "xor %%ebp, %%ebp\n\t"
                   "mov %%r13, %%rdi\n\t"
                   "call *%%r12\n\t"
                   "hlt\n"
                   "1:"
                   : "=a"(result)
                   : "a"((long)SYS_clone3), "D"(request), "S"(sizeof *request), "r"(run), "r"(data)
                   : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long number __asm__("x8") = SYS_clone3;
  register long result __asm__("x0") = (long)request;
  register long size __asm__("x1") = sizeof *request;
  register int (*run)(void *) __asm__("x10") = child;
  register void *data __asm__("x11") = arg;
  __asm__ volatile("svc #0\n\t"
                   "cbnz x0, 1f\n\t"
                   "mov x29, xzr\n\t"
                   "mov x0, x11\n\t"
                   "blr x10\n\t"
                   "brk #1\n"
                   "1:"
                   : "+r"(result)
                   : "r"(number), "r"(size), "r"(run), "r"(data)
                   : "memory", "cc");
  return result;
#else
#error "the agent is built for x86-64 and aarch64"
#endif
}

/*
 * Like clone(2), but starts the child in the job's cgroup. Linux before 5.7 fails with ENOSYS, EINVAL or E2BIG. A
 * seccomp filter that forbids clone3 fails with ENOSYS or EPERM.
 */
static int clone_into_cgroup(struct spawn_job *job, char *stack, int flags) {
  struct clone_args request = {
      .flags = (uint64_t)(unsigned)flags | CLONE_INTO_CGROUP,
      .parent_tid = (uintptr_t)&job->pid,
      .exit_signal = SIGCHLD,
      .stack = (uintptr_t)stack,
      .stack_size = CHILD_STACK_BYTES,
      .cgroup = (uint64_t)(unsigned)job->cgroup_fd,
  };
  long result = clone3(&request, spawn_child, job);
  return result >= 0 ? (int)result : fail_with((int)-result);
}

/*
 * Starts the child directly in its cgroup, because moving a process to a cgroup later takes milliseconds (RCU). If
 * clone3 cannot start the child in the cgroup, the child moves itself.
 */
static int start_child(struct spawn_job *job, char *stack) {
  int flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID;
  if (job->cgroup_fd >= 0) {
    int pid = clone_into_cgroup(job, stack, flags);
    if (pid >= 0 || errno == EAGAIN || errno == ENOMEM) return pid;
    job->joins_cgroup = true;
  }
  return clone(spawn_child, stack + CHILD_STACK_BYTES, flags | SIGCHLD, job, &job->pid);
}

/* CLONE_VFORK suspends this thread until the child has called execve or failed. */
void *run_job(void *data) {
  struct spawn_job *job = data;
  _Alignas(16) char stack[CHILD_STACK_BYTES];
  use_children_slice();
  if (open_streams(job) == 0) {
    int pid = start_child(job, stack);
    if (pid >= 0) {
      settle(job, pid);
    } else {
      job->step = "clone";
      job->error = errno;
    }
    /* The agent must close its copies of the child's ends, because otherwise the streams would never reach EOF. */
    close_child_ends(job);
    if (job->error != 0) close_agent_ends(job);
  }
  deliver_job(job);
  return NULL;
}
