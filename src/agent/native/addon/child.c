/*
 * Code of the child between clone and execve. The child shares the agent's memory, where another thread may hold any
 * lock, so it must not call malloc. It makes raw system calls, because glibc's setuid signals all threads, and glibc's
 * sigaction rejects two signals.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "spawn.h"

enum { LAST_SIGNAL = 64, KERNEL_SIGSET_BYTES = 8 };

/*
 * Resets all 64 signals, including real-time signals, to their default action. Otherwise Node's handlers could run in
 * the child, and signals that Node ignores would stay ignored after execve(2).
 */
static int reset_signals(struct spawn_job *job) {
  unsigned long default_action[8] = {0};
  for (int signal = 1; signal <= LAST_SIGNAL; signal++)
    syscall(SYS_rt_sigaction, signal, default_action, NULL, KERNEL_SIGSET_BYTES);
  if (!atomic_load(&job->aborted)) return 0;
  errno = ECANCELED;
  return -1;
}

/*
 * Makes the child's ends of its streams the descriptors 0 to 2. If an end has one of these numbers, but not the right
 * one, it is first duplicated to a number above 2. Otherwise the dup3 of another stream could overwrite it.
 */
static int place_stdio(struct spawn_job *job) {
  int source[3];
  for (int i = 0; i < 3; i++) {
    source[i] = job->child_ends[i];
    if (source[i] < 3 && source[i] != i && (source[i] = fcntl(source[i], F_DUPFD_CLOEXEC, 3)) < 0) return -1;
  }
  for (int i = 0; i < 3; i++)
    if (source[i] == i ? fcntl(i, F_SETFD, 0) < 0 : syscall(SYS_dup3, source[i], i, 0) < 0) return -1;
  return 0;
}

/*
 * Closes all descriptors except the standard streams and the cgroup's directory. A later step may hang, and meanwhile a
 * copy of another child's pipe would keep that pipe's reader from getting EOF. On Linux before 5.9, which lacks
 * close_range, this function closes nothing, and the copies stay open until close_descriptors.
 */
static int close_copies(struct spawn_job *job) {
  unsigned kept = job->cgroup_fd > 2 ? (unsigned)job->cgroup_fd : 2;
  if (kept > 3) syscall(SYS_close_range, 3U, kept - 1, 0);
  syscall(SYS_close_range, kept + 1, ~0U, 0);
  return 0;
}

static int lead_session(struct spawn_job *job) {
  return job->streams == STREAMS_INHERITED ? 0 : (int)syscall(SYS_setsid);
}

/*
 * Creates a process group in the agent's session. If the agent's group is the terminal's foreground group, makes the
 * new group the foreground group, because a child in the background would be stopped at its first read from the
 * terminal. All signals are blocked, so SIGTTOU cannot stop the child here.
 */
static int lead_group(struct spawn_job *job) {
  if (job->streams != STREAMS_INHERITED) return 0;
  pid_t foreground = 0, own = (pid_t)syscall(SYS_getpid);
  pid_t before = (pid_t)syscall(SYS_getpgid, 0);
  bool in_foreground = ioctl(0, TIOCGPGRP, &foreground) == 0 && foreground == before;
  if (syscall(SYS_setpgid, 0, 0) < 0) return -1;
  if (in_foreground) ioctl(0, TIOCSPGRP, &own);
  return 0;
}

static int take_terminal(struct spawn_job *job) {
  return job->streams == STREAMS_TERMINAL ? ioctl(0, TIOCSCTTY, 0) : 0;
}

/* Writing "0" to cgroup.procs moves the writing process itself (cgroups(7)). */
static int join_cgroup(struct spawn_job *job) {
  if (!job->joins_cgroup) return 0;
  int fd = (int)syscall(SYS_openat, job->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  return fd >= 0 && syscall(SYS_write, fd, "0", 1) == 1 ? 0 : -1;
}

/*
 * Sets the priority and the OOM score of the child, which would otherwise be those of the agent. The child can have its
 * own score, although it shares the agent's memory, because it is vforked (fs/proc/base.c, __set_oom_adj). If the agent
 * is not root, the open fails with EACCES: the agent is not dumpable, so root owns the child's files in /proc until
 * execve. The agent then writes the score after execve. All other failures are ignored, because a missing or unusual
 * /proc must not prevent the command.
 */
static int reset_oom_score(struct spawn_job *job) {
  if (job->resets_priority) syscall(SYS_setpriority, PRIO_PROCESS, 0, job->priority);
  if (job->oom_score[0] == '\0') return 0;
  int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", flags);
  if (fd >= 0) syscall(SYS_write, fd, job->oom_score, strlen(job->oom_score));
  job->parent_sets_oom_score = fd < 0 && errno == EACCES;
  return 0;
}

static int set_limits(struct spawn_job *job) {
  return (int)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &job->open_files, NULL);
}

static int set_groups(struct spawn_job *job) {
  return job->has_identity ? (int)syscall(SYS_setgroups, job->group_count, job->groups) : 0;
}

static int set_gid(struct spawn_job *job) { return job->has_identity ? (int)syscall(SYS_setgid, job->gid) : 0; }

static int set_uid(struct spawn_job *job) { return job->has_identity ? (int)syscall(SYS_setuid, job->uid) : 0; }

static int change_directory(struct spawn_job *job) { return (int)syscall(SYS_chdir, job->cwd[0]); }

/* Closes the descriptors that procfs lists. Returns false if /proc is missing or is not a procfs. */
static bool close_listed(void) {
  _Alignas(struct dirent64) char list[2048];
  struct statfs file_system;
  long length = -1;
  int directory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  if (syscall(SYS_fstatfs, directory, &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC) {
    while ((length = syscall(SYS_getdents64, directory, list, sizeof list)) > 0) {
      for (char *next = list; next < list + length; next += ((struct dirent64 *)next)->d_reclen) {
        int fd = atoi(((struct dirent64 *)next)->d_name);
        if (fd > 2 && fd != directory) syscall(SYS_close, fd);
      }
    }
  }
  syscall(SYS_close, directory);
  return length == 0;
}

/*
 * Closes all descriptors except the standard streams. O_CLOEXEC does not suffice: execve(2) first resumes the agent and
 * only then closes descriptors, so the child's copies of other children's pipes would stay open for a moment. There are
 * three ways, tried in this order:
 *   - Call close_range, which Linux before 5.9 and some seccomp filters lack.
 *   - Close the descriptors that /proc lists.
 *   - Close every number up to the hard limit, which may be a billion.
 */
static int close_descriptors(struct spawn_job *job) {
  if (syscall(SYS_close_range, 3U, ~0U, 0) == 0 || close_listed()) return 0;
  for (rlim_t fd = 3; fd < job->open_files.rlim_max; fd++) syscall(SYS_close, (int)fd);
  return 0;
}

/* Tries the files as execvp(3) does for PATH, but a file of unknown format is an error and is not run by a shell. */
static int become_command(struct spawn_job *job) {
  unsigned long no_signals = 0;
  bool denied = false;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, KERNEL_SIGSET_BYTES);
  errno = ENOENT;
  for (char **file = job->files; *file != NULL; file++) {
    job->candidate = (int)(file - job->files);
    syscall(SYS_execve, *file, job->args, job->env);
    if (errno == EACCES)
      denied = true;
    else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT)
      return -1;
  }
  if (denied) errno = EACCES;
  return -1;
}

/* The identity is set before chdir, so that the directory's permissions are checked for that user. */
static const struct {
  const char *name;
  int (*run)(struct spawn_job *job);
} STEPS[] = {
    {"killed", reset_signals},     {"stdio", place_stdio},     {"stdio", close_copies},  {"setsid", lead_session},
    {"setpgid", lead_group},       {"ctty", take_terminal},    {"cgroup", join_cgroup},  {"rlimit", reset_oom_score},
    {"rlimit", set_limits},        {"setgroups", set_groups},  {"setgid", set_gid},      {"setuid", set_uid},
    {"chdir", change_directory},   {"stdio", close_descriptors}, {"execve", become_command},
};

int spawn_child(void *data) {
  struct spawn_job *job = data;
  for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
    job->step = STEPS[i].name;
    if (STEPS[i].run(job) < 0) {
      job->error = errno;
      break;
    }
  }
  syscall(SYS_exit_group, 127);
  return 127;
}
