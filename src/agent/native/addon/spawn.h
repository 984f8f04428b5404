/*
 * Declarations for spawn.c, spawn_thread.c and streams.c, which run in the agent, and for child.c, which runs in the
 * child until execve.
 */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "addon.h"

/* The child's standard streams. They decide whether the child leads a session or only a process group. */
enum spawn_streams {
  /*
   * The child leads a process group. Its streams are the agent's, except that stdout and stderr are pipes if
   * `pipes_outputs` of the job is true.
   */
  STREAMS_INHERITED = 0,
  STREAMS_PIPES = 1,     /* the child gets a pipe for each stream, and becomes a session leader */
  STREAMS_TERMINAL = 2,  /* the child gets a new terminal, which controls its session */
};

struct spawn_job {
  struct spawn_job *next; /* the next job in the list of starting jobs; used only by the JavaScript thread */
  int number;             /* number by which abortSpawn identifies the job */
  napi_ref done;

  /* The fields of the SpawnBlock. They do not change once the thread runs. */
  char **files;
  char **args;
  char **env;
  char **cwd; /* the working directory, the only string of the list */
  enum spawn_streams streams;
  bool has_input; /* only for STREAMS_PIPES: true if stdin is a pipe, false if it is /dev/null */
  bool pipes_outputs; /* only for STREAMS_INHERITED: true if stdout and stderr are pipes, false if the agent's */
  int cols, rows;
  bool iutf8; /* whether the terminal's line editing treats input as UTF-8 */
  int cgroup_fd; /* open directory of the child's cgroup, or -1 */
  bool joins_cgroup; /* whether the child must move itself into the cgroup of cgroup_fd */
  bool resets_priority;
  int priority;
  char oom_score[16]; /* score that the child writes to oom_score_adj; empty if it writes none */
  struct rlimit open_files;
  bool has_identity;
  uid_t uid;
  gid_t gid;
  gid_t *groups;
  size_t group_count;

  /* Standard streams in the order stdin, stdout, stderr; -1 if there is no such stream. */
  int child_ends[3];
  int agent_ends[3];

  /* The outcome. `step` and `error` are written by the child itself, which shares the agent's memory until execve. */
  const char *volatile step; /* the current step, one of SpawnStep (domain/ports) */
  volatile int candidate;    /* index in `files` of the file that the child tries to execute */
  volatile int error; /* errno of the failed step; 0 if no step has failed */
  /* Whether the agent must set the child's OOM score after execve, because the child was not permitted to set it. */
  volatile bool parent_sets_oom_score;
  atomic_int pid;            /* pid of the child; the kernel writes it before the child runs (CLONE_PARENT_SETTID) */

  /* Fields that both the JavaScript thread and the job's thread use. */
  pthread_mutex_t lock;
  bool settled; /* true after the start has succeeded or failed; the pid may be reused then, so do not signal it */
  atomic_bool aborted;
};

/*
 * Size of the stack of a thread that starts a child. It has room for the thread itself, for the child, and for the C
 * library's thread data.
 */
enum { SPAWN_STACK_BYTES = 192 * 1024 };

/* Thread function: starts the child, and then passes the job to JavaScript (deliver_job). */
void *run_job(void *job);

/* Delivers a settled job to JavaScript, which then owns the job. May be called from any thread. */
void deliver_job(struct spawn_job *job);

/* Undoes agent_shorten_slice for the calling thread. */
void use_children_slice(void);

/* Runs in the child: carries out the steps in order and executes the command. Returns only on failure. */
int spawn_child(void *job);

/* Opens both ends of the streams. On failure returns -1, with step and errno in the job, and leaves nothing open. */
int open_streams(struct spawn_job *job);
void close_child_ends(struct spawn_job *job);
void close_agent_ends(struct spawn_job *job);

/* Opens a terminal: a non-blocking master and a blocking slave. On failure returns -1 with errno. */
int open_terminal(int cols, int rows, int ends[2]);
/* Makes a terminal's line editing treat input as UTF-8. Failure is ignored. */
void set_utf8_input(int slave);

#endif
