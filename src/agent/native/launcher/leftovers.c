#include "leftovers.h"

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

/*
 * How long the launcher waits at most for killed processes to end. A process may survive SIGKILL, for example if it
 * hangs in the kernel, and must not keep the launcher from exiting.
 */
#define KILL_GRACE_MS 10000
#define KILL_ROUND_MS 1
/*
 * After so many successive rounds without a process to signal, the launcher stops waiting for children. One such round
 * is not enough, because the kernel's list of children may be incomplete.
 */
#define MAX_IDLE_ROUNDS 100
/*
 * Interval between searches for adopted children. When a descendant exits, the launcher adopts the descendant's
 * children without receiving a SIGCHLD, so it must search for them.
 */
#define ADOPTION_POLL_MS 50
#define HIGHEST_PRIORITY (-20)
/* Length of the pause after a search of all pids, divided by the length of the search. */
#define SEARCH_PAUSE_FACTOR 9
#define UNOPENED (-2)

/*
 * Processes that got SIGTERM. They do not get a second SIGTERM, because many programs then exit immediately, without
 * cleaning up.
 */
static process_set sigtermed;

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Whether the last round signalled a process. False does not mean that no process is left: the launcher may lack the
 * permission to signal processes of other users.
 */
static bool signalled_any;

/* Sends a signal and then SIGCONT, because a stopped process handles the signal only when it is continued. */
static void signal_process(pid_t process, int number) {
  if (number == SIGTERM && is_in(sigtermed, process)) return;
  if (number == SIGTERM) put(sigtermed, process, true);
  if (kill(process, number) == 0) signalled_any = true;
  kill(process, SIGCONT);
}

/*
 * Signals the children in the kernel's list, as many as fit into the buffer. Returns false if the kernel has no such
 * list (no CONFIG_PROC_CHILDREN).
 */
static bool signal_listed_children(int proc, int number) {
  char path[64], list[32768];
  snprintf(path, sizeof path, "self/task/%d/children", getpid());
  if (read_text(proc, path, list, sizeof list) < 0)
    return false;
  /* The list may be cut off in the middle of the last pid, so the loop uses only pids that are followed by a space. */
  for (char *next = list, *end; (end = strchr(next, ' ')) != NULL; next = end + 1)
    signal_process((pid_t)strtol(next, NULL, 10), number);
  return true;
}

/*
 * Whether the process is a child of the launcher: waitid(2) succeeds only for a child. WNOWAIT keeps it from reaping a
 * zombie.
 */
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
 * Finds children by trying every possible pid, and signals them. This takes about a second, but needs neither /proc nor
 * CONFIG_PROC_CHILDREN. After a search there is a pause, so that the signalled processes get CPU time to exit.
 */
static void signal_found_children(int number) {
  static long paused_until_ms;
  long began_ms = now_ms();
  if (began_ms < paused_until_ms) {
    /*
     * During the pause no search is made, so children may be left. With `signalled_any` set, the caller does not count
     * this round as one without children.
     */
    signalled_any = true;
    return;
  }
  for (pid_t process = 2; process <= HIGHEST_PID; process++) {
    if (is_own_child(process)) signal_process(process, number);
  }
  long ended_ms = now_ms();
  paused_until_ms = ended_ms + SEARCH_PAUSE_FACTOR * (ended_ms - began_ms);
}

static void signal_children(int number) {
  static int proc = UNOPENED;
  if (proc == UNOPENED)
    proc = open_proc();
  if (proc < 0 || !(signal_listed_children(proc, number) || signal_children_of(proc, number)))
    signal_found_children(number);
}

/* As PID 1, signals all processes; otherwise only the launcher's children. */
static void signal_leftovers(int number) {
  static bool all_sigtermed;
  if (getpid() == 1) {
    if (number == SIGTERM && all_sigtermed) return;
    all_sigtermed = true;
    signalled_any = kill(-1, number) == 0;
    kill(-1, SIGCONT);
  } else {
    signal_children(number);
  }
}

/*
 * Reaps until `deadline_ms`. Returns true if no child is left. Removes reaped processes from `sigtermed`, because their
 * pids may be reused.
 */
static bool reap_until(long deadline_ms) {
  for (;;) {
    pid_t ended;
    int status;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      trace_reaped(ended, status);
      put(sigtermed, ended, false);
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

/*
 * Sends SIGTERM to all children, including those that are adopted later, when their parents exit. Returns true if no
 * child is left at the deadline.
 */
static bool end_in_time(long deadline_ms) {
  for (long now = now_ms(); now < deadline_ms; now = now_ms()) {
    signal_leftovers(SIGTERM);
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
  /*
   * To stop processes that fork in a loop, the launcher must signal them before they fork again, so it raises its
   * priority.
   */
  setpriority(PRIO_PROCESS, 0, HIGHEST_PRIORITY);
  long deadline_ms = now_ms() + KILL_GRACE_MS;
  int idle_rounds = 0;
  do {
    kill_session(session);
    signalled_any = false;
    signal_leftovers(SIGKILL);
    idle_rounds = signalled_any ? 0 : idle_rounds + 1;
  } while (!reap_until(now_ms() + KILL_ROUND_MS) && idle_rounds < MAX_IDLE_ROUNDS && now_ms() < deadline_ms);
}

void end_leftovers(int session, pid_t agent, int grace_ms) {
  end_processes(session, grace_ms);
  remove_session(session, agent);
}
