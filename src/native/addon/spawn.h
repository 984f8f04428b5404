/* What spawn.c (this process) and child.c (the child before it becomes the command) share. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

enum spawn_session {
  SPAWN_GROUP = 0,    /* a process group of its own */
  SPAWN_SESSION = 1,  /* a session of its own */
  SPAWN_TERMINAL = 2, /* the same, and stdio[0] becomes its controlling terminal */
};

struct spawn_job {
  /* The request; nobody changes it once the thread runs. */
  char **candidates;
  char **args;
  char **env;
  char **cwd; /* one element */
  int stdio[3]; /* -1: closed in the child */
  enum spawn_session session;
  int cgroup_fd; /* the directory of a cgroup, or -1 */
  bool joins_cgroup; /* the child has to move there itself */
  bool resets_priority;
  int priority;
  char oom_score[8]; /* what the child writes to oom_score_adj; empty: nothing */
  struct rlimit open_files;
  bool has_identity;
  uid_t uid;
  gid_t gid;
  gid_t *groups;
  size_t group_count;

  /* The outcome. The child shares our memory until it becomes the command, so it writes step and error itself. */
  const char *volatile step; /* the step that is under way, named as in the port */
  volatile int error;        /* errno of the step that failed; 0: none has */
  atomic_int pid;            /* written by the kernel before the child runs (CLONE_PARENT_SETTID) */

  /* Between the JavaScript thread and the job's own. */
  pthread_mutex_t lock;
  bool settled; /* the child has become the command or failed: its id may be gone */
  atomic_bool aborted;
  int owners; /* references: the pending result and the handle; used by the JavaScript thread only */
};

/* The child: carries out every step in order and becomes the command. Returns only on failure. */
int spawn_child(void *job);

#endif
