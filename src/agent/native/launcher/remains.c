#include "remains.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"
#include "process_set.h"
#include "session.h"
#include "signals.h"
#include "trace.h"

/* Something that SIGKILL does not end, such as a process stuck in the kernel, must not keep the launcher. */
#define KILL_GRACE_MS 10000
#define KILL_ROUND_MS 1
/* The kernel's list of children may leave out some, but not for long. */
#define ROUNDS_IN_VAIN 100
/* How often to poll for orphans of others' children, of whose end the launcher gets no SIGCHLD. */
#define ADOPTION_POLL_MS 50
#define HIGHEST_PRIORITY (-20)
/* Pause after a search of all process ids, in times of what it took. */
#define SEARCH_PAUSE_PART 9
#define UNOPENED (-2)

/* Processes that got SIGTERM: to many programs a second one means "at once". */
static process_set asked;

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The last round found a process that the launcher may signal. It may not signal those of another user. */
static bool reached;

/* A stopped process would act on the signal only once it is continued. */
static void signal_process(pid_t process, int number) {
  if (number == SIGTERM && is_in(asked, process)) return;
  if (number == SIGTERM) put(asked, process, true);
  if (kill(process, number) == 0) reached = true;
  kill(process, SIGCONT);
}

/* As many children as fit; false where the kernel does not list them (no CONFIG_PROC_CHILDREN). */
static bool signal_listed_children(int proc, int number) {
  char path[64], list[32768];
  snprintf(path, sizeof path, "self/task/%d/children", getpid());
  if (read_text(proc, path, list, sizeof list) < 0)
    return false;
  /* Where the list fills the buffer the last number may be cut off: take only those that a space follows. */
  for (char *next = list, *end; (end = strchr(next, ' ')) != NULL; next = end + 1)
    signal_process((pid_t)strtol(next, NULL, 10), number);
  return true;
}

/* waitid(2) knows whose child a process is; WNOWAIT leaves it as it is. */
static bool is_own_child(pid_t process) {
  siginfo_t info;
  return waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static bool signal_children_of(int proc, int number) {
  DIR *entries = fdopendir(openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entries == NULL)
    return false;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    pid_t process = atoi(entry->d_name);
    if (process > 1 && is_own_child(process))
      signal_process(process, number);
  }
  closedir(entries);
  return true;
}

/*
 * Asks for every possible process id in turn: a second of work, but it needs nothing of the image or the kernel. Pauses
 * after that, so that what is to end has a processor to do so.
 */
static void signal_found_children(int number) {
  static long rests_until_ms;
  long began_ms = now_ms();
  if (began_ms < rests_until_ms) {
    /* Nothing is known of this round. */
    reached = true;
    return;
  }
  for (pid_t process = 2; process <= HIGHEST_PID; process++) {
    if (is_own_child(process)) signal_process(process, number);
  }
  long ended_ms = now_ms();
  rests_until_ms = ended_ms + SEARCH_PAUSE_PART * (ended_ms - began_ms);
}

static void signal_children(int number) {
  static int proc = UNOPENED;
  if (proc == UNOPENED)
    proc = open_proc();
  if (proc < 0 || !(signal_listed_children(proc, number) || signal_children_of(proc, number)))
    signal_found_children(number);
}

/* Others must not be signalled where the launcher is not the first process of all. */
static void signal_remains(int number) {
  static bool all_asked;
  if (getpid() == 1) {
    if (number == SIGTERM && all_asked) return;
    all_asked = true;
    reached = kill(-1, number) == 0;
    kill(-1, SIGCONT);
  } else {
    signal_children(number);
  }
}

/* Reaps until `deadline_ms`; true when no child is left. The kernel may give reaped ids to others. */
static bool reap_until(long deadline_ms) {
  for (;;) {
    pid_t ended;
    int status;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      trace_reaped(ended, status);
      put(asked, ended, false);
    }
    if (ended < 0)
      return true;
    long left_ms = deadline_ms - now_ms();
    if (left_ms <= 0)
      return false;
    siginfo_t info;
    take_signal(ONLY(SIGCHLD), (int)left_ms, &info);
  }
}

/* Sends SIGTERM to all children, and to those that it adopts as their parents end; true when none is left. */
static bool end_in_time(long deadline_ms) {
  for (long now = now_ms(); now < deadline_ms; now = now_ms()) {
    signal_remains(SIGTERM);
    long poll_ms = now + ADOPTION_POLL_MS;
    if (reap_until(poll_ms < deadline_ms ? poll_ms : deadline_ms))
      return true;
  }
  return false;
}

static void end_processes(int session, int grace_ms) {
  if (reap_until(now_ms()))
    return;
  thaw_session(session);
  if (end_in_time(now_ms() + grace_ms))
    return;
  /* A fork loop is beaten by speed: each round must signal processes before they fork again. */
  setpriority(PRIO_PROCESS, 0, HIGHEST_PRIORITY);
  long deadline_ms = now_ms() + KILL_GRACE_MS;
  int rounds_in_vain = 0;
  do {
    kill_session(session);
    reached = false;
    signal_remains(SIGKILL);
    rounds_in_vain = reached ? 0 : rounds_in_vain + 1;
  } while (!reap_until(now_ms() + KILL_ROUND_MS) && rounds_in_vain < ROUNDS_IN_VAIN && now_ms() < deadline_ms);
}

void end_leftovers(int session, pid_t agent, int grace_ms) {
  end_processes(session, grace_ms);
  remove_session(session, agent);
}
