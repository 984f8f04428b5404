/* Shared by spawn.c, spawn_thread.c and streams.c (in this process) and child.c (the child before execve). */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "addon.h"

/* The child's standard streams. They decide whether the child leads a session or only a process group. */
enum spawn_streams {
  STREAMS_INHERITED = 0, /* those of the agent, or pipes for the outputs; the child leads a process group */
  STREAMS_PIPES = 1,     /* one pipe each; the child leads a session */
  STREAMS_TERMINAL = 2,  /* a new terminal, which is the controlling terminal of the child's session */
};

struct spawn_job {
  struct spawn_job *next; /* next job that is starting; used only by the JavaScript thread */
  int number;             /* identifies the job for abortSpawn */
  napi_ref done;          /* the JavaScript callback */

  /* The block. It is not changed once the thread runs. */
  char **files;
  char **args;
  char **env;
  char **cwd; /* one element */
  enum spawn_streams streams;
  bool has_input; /* with pipes: standard input is a pipe, too */
  bool pipes_outputs; /* with inherited streams: the outputs are pipes anyway */
  int cols, rows;
  bool iutf8; /* the terminal's line editing treats input as UTF-8 */
  int cgroup_fd; /* open directory of a cgroup, or -1 */
  bool joins_cgroup; /* the child must move itself into that cgroup */
  bool resets_priority;
  int priority;
  char oom_score[16]; /* what the child writes to oom_score_adj; empty if nothing */
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
  const char *volatile step; /* the current step, named as in the port */
  volatile int candidate;    /* index in `files` of the file that execve tries */
  volatile int error; /* errno of the failed step; 0 if none has failed */
  /* the child may lack the permission to write its OOM score; the agent then writes it after execve */
  volatile bool parent_sets_oom_score;
  atomic_int pid;            /* written by the kernel before the child runs (CLONE_PARENT_SETTID) */

  /* Shared by the JavaScript thread and the job's thread. */
  pthread_mutex_t lock;
  bool settled; /* the child runs the command or has failed: its pid may be reused */
  atomic_bool aborted;
};

/*
 * Size of the stack of a thread that starts a child. It has room for the thread itself, for the child, and for the C
 * library's thread data.
 */
enum { SPAWN_STACK_BYTES = 192 * 1024 };

/* Thread function: starts the child and delivers the job. */
void *run_job(void *job);

/* Delivers a settled job to JavaScript and gives up its ownership. May be called from any thread. */
void deliver_job(struct spawn_job *job);

/* Undoes agent_shorten_slice for the calling thread. */
void use_children_slice(void);

/* Runs in the child: carries out the steps in order and executes the command. Returns only on failure. */
int spawn_child(void *job);

/* Opens both ends of the streams. On failure returns -1, with step and errno in the job, and leaves nothing open. */
int open_streams(struct spawn_job *job);
/* Closes the child's ends, or the agent's. */
void close_child_ends(struct spawn_job *job);
void close_agent_ends(struct spawn_job *job);

/* Opens a terminal: a non-blocking master and a blocking slave. On failure returns -1 with errno. */
int open_terminal(int cols, int rows, int ends[2]);
/* Makes a terminal's line editing treat input as UTF-8. Failure is ignored. */
void set_utf8_input(int slave);

#endif
