/*
 * The agent's time slice in Linux's scheduler (EEVDF, sched_setattr(2), Linux 6.12). The kernel prefers the task whose
 * slice would end first, so a task with a short slice runs sooner after it wakes up. Its share of the CPU stays the
 * same.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "addon.h"
#include "spawn.h"

/*
 * The agent's time slice. On a guest with two CPUs, it is half of the kernel's default. With a slice of 0.1 ms a
 * command took longer, because other processes interrupted the agent too often.
 */
enum { AGENT_SLICE_NS = 700 * 1000 };
/* The scheduling policies SCHED_OTHER and SCHED_BATCH. Only tasks with these policies have a time slice. */
enum { POLICY_OTHER = 0, POLICY_BATCH = 3 };

/* The first version of struct sched_attr. The C library of Debian 12 does not declare it. */
struct scheduling {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t slice_ns; /* sched_runtime */
  uint64_t deadline;
  uint64_t period;
};

static bool is_shortened;
/* Time slice of children: the slice that the agent was started with, or 0 for the kernel's default. */
static uint64_t children_slice_ns;

/* Reads the scheduling parameters of the calling thread. Returns false, with errno, if they contain no time slice. */
static bool get_scheduling(struct scheduling *now) {
  *now = (struct scheduling){.size = sizeof *now};
  if (syscall(SYS_sched_getattr, 0, now, sizeof *now, 0) < 0) return false;
  /* Before Linux 6.12 the kernel reports a slice of 0. */
  if ((now->policy == POLICY_OTHER || now->policy == POLICY_BATCH) && now->slice_ns > 0) return true;
  errno = EOPNOTSUPP;
  return false;
}

static bool set_slice(struct scheduling *now, uint64_t slice_ns) {
  now->slice_ns = slice_ns;
  return syscall(SYS_sched_setattr, 0, now, 0) == 0;
}

/*
 * Gives the calling thread a short time slice, and stores the previous slice for the agent's children (0 if it was the
 * kernel's default). To compare it with the default, the function first removes the thread's own slice, because only
 * then does the kernel report the default.
 */
long agent_shorten_slice(void) {
  struct scheduling now;
  if (!get_scheduling(&now)) return -1;
  uint64_t before_ns = now.slice_ns;
  if (before_ns <= AGENT_SLICE_NS) return 0;
  if (!set_slice(&now, 0) || !get_scheduling(&now)) return -1;
  children_slice_ns = now.slice_ns == before_ns ? 0 : before_ns;
  is_shortened = set_slice(&now, AGENT_SLICE_NS);
  return is_shortened ? 0 : -1;
}

/*
 * Gives the calling thread the time slice for children. The thread is about to start a child, which inherits its slice.
 */
void use_children_slice(void) {
  struct scheduling now;
  if (is_shortened && get_scheduling(&now)) set_slice(&now, children_slice_ns);
}
