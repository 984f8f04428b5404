/* What spawn.c, spawn_thread.c and streams.c (this process) and child.c (the child before its command) share. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "addon.h"

/* Where the child's standard streams lead, which decides what the child leads itself. */
enum spawn_streams {
  STREAMS_INHERITED = 0, /* ours, or pipes for its outputs; it leads a process group in our session */
  STREAMS_PIPES = 1,     /* a pipe each; it leads a session */
  STREAMS_TERMINAL = 2,  /* a new terminal, which controls the session that it leads */
};

struct spawn_job {
  struct spawn_job *next; /* of the starting ones; used by the JavaScript thread only */
  int number;             /* names it to abortSpawn */
  napi_ref done;          /* the callback */

  /* The block; nobody changes it once the thread runs. */
  char **files;
  char **args;
  char **env;
  char **cwd; /* one element */
  enum spawn_streams streams;
  bool has_input; /* of pipes: standard input is one too */
  bool pipes_outputs; /* of inherited streams: the outputs are pipes all the same */
  int cols, rows;
  bool iutf8; /* the terminal's line editing takes input as UTF-8 */
  int cgroup_fd; /* the directory of a cgroup, or -1 */
  bool joins_cgroup; /* the child has to move there itself */
  bool resets_priority;
  int priority;
  char oom_score[16]; /* what the child writes to oom_score_adj; empty: nothing */
  struct rlimit open_files;
  bool has_identity;
  uid_t uid;
  gid_t gid;
  gid_t *groups;
  size_t group_count;

  /* The standard streams, input first; -1: none. */
  int theirs[3];
  int ours[3];

  /* The outcome. The child shares our memory until it becomes the command, so it writes step and error itself. */
  const char *volatile step; /* the step that is under way, named as in the port */
  volatile int candidate;    /* of `files`: the one that execve tries */
  volatile int error;        /* errno of the step that failed; 0: none has */
  volatile bool parent_sets_oom_score; /* the child may not change its OOM score; the agent may once it has become the command */
  atomic_int pid;            /* written by the kernel before the child runs (CLONE_PARENT_SETTID) */

  /* Between the JavaScript thread and the job's own. */
  pthread_mutex_t lock;
  bool settled; /* the child has become the command or failed: its id may be gone */
  atomic_bool aborted;
};

/* The stack of a thread that starts a child: for the thread, the child and the C library's thread data. */
enum { SPAWN_STACK_BYTES = 192 * 1024 };

/* What that thread runs: starts the child and delivers the job in the end. */
void *run_job(void *job);

/* Hands a job that is settled to JavaScript. From any thread; the job is then no longer the caller's. */
void deliver_job(struct spawn_job *job);

/* The child: carries out every step in order and becomes the command. Returns only on failure. */
int spawn_child(void *job);

/* Opens both sides of the streams. On failure returns -1 with step and errno in the job, and nothing is left open. */
int open_streams(struct spawn_job *job);
/* Closes the child's side, or ours. */
void close_their_streams(struct spawn_job *job);
void close_our_streams(struct spawn_job *job);

/* A new terminal: the master, which does not block, and the slave, which does. -1 and errno on failure. */
int open_terminal(int cols, int rows, int ends[2]);
/* Makes a terminal's line editing take input as UTF-8, best effort. */
void set_utf8_input(int slave);

#endif
