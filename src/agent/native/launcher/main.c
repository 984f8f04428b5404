/*
 * The entrypoint of the sandbox. It starts the agent as its child, isolated from the image's environment, and does what
 * a Node process cannot: it catches every signal and reaps orphans. It is linked statically, so it runs in any image.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent.h"
#include "bundle.h"
#include "environment.h"
#include "failure.h"
#include "oom_score.h"
#include "probe.h"
#include "leftovers.h"
#include "signals.h"
#include "trace.h"

/* Opens /dev/null. The image may have another file at this path, which must not block the open. */
static int open_null_device(void) {
  struct stat found;
  if (stat("/dev/null", &found) < 0 || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(1, 3))
    return -1;
  return open("/dev/null", O_RDWR | O_NOCTTY);
}

/* Opens a stream that is at EOF: /dev/null, or a socket without a peer, on which writes fail with EPIPE. */
static int open_ended_stream(void) {
  int device = open_null_device();
  if (device >= 0)
    return device;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
    fail("cannot replace a closed standard stream");
  close(pair[1]);
  return pair[0];
}

/*
 * Opens a replacement for each closed standard stream, because Node aborts without them. open(2) returns the lowest
 * free number, which is the number of the closed stream.
 */
static void ensure_standard_streams(void) {
  for (int stream = 0; stream <= 2; stream++) {
    if (fcntl(stream, F_GETFD) < 0 && open_ended_stream() != stream)
      fail_because("cannot replace a closed standard stream", "unexpected descriptor");
  }
}

/*
 * Closes all inherited descriptors except the standard streams. Linux before 5.9 lacks close_range(2). There the agent
 * inherits the descriptors, but its children do not, because each child closes them before it executes its command.
 */
static void close_inherited_descriptors(void) {
  syscall(SYS_close_range, 3U, ~0U, 0U);
}

/* The launcher's end is closed on exec, so the agent reads EOF when the launcher dies. */
static void open_channel(int *launcher_end, int *agent_end) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
    fail("cannot open a channel to the agent");
  *launcher_end = ends[0];
  *agent_end = dup(ends[1]);
  if (*agent_end < 0 || close(ends[1]) < 0)
    fail("cannot open a channel to the agent");
}

static void report_crash(int status) {
  char text[300];
  if (!WIFSIGNALED(status)) {
    /*
     * EX_SOFTWARE means that the agent crashed and wrote the reason to its log. With any other status, the agent or its
     * subcommand has printed the reason, so the launcher prints nothing.
     */
    if (WEXITSTATUS(status) == EX_SOFTWARE)
      say_without_waiting("guest-agent: the agent crashed (see its log); its remaining processes were ended\n");
    return;
  }
  /*
   * Node aborts (SIGABRT) without a message if a limit prevents it from starting its threads, so the launcher names
   * these limits.
   */
  const char *hint = WTERMSIG(status) == SIGABRT ? "; it requires 30 processes and threads: check pids.max of its "
                                                   "cgroup and the process limit of its user (RLIMIT_NPROC)"
                                                 : "";
  snprintf(text, sizeof text, "guest-agent: the agent was killed by signal %d (%s); its remaining processes were ended%s\n",
           WTERMSIG(status), strsignal(WTERMSIG(status)), hint);
  say_without_waiting(text);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "probe") == 0)
    return probe(argc, argv);
  struct bundle bundle;
  int channel, agent_channel;
  int container_score = protect_from_oom_killer();
  ensure_standard_streams();
  close_inherited_descriptors();
  find_bundle(&bundle);
  read_ahead(&bundle);
  read_trace_level();
  int environment = move_environment(environ);
  open_channel(&channel, &agent_channel);
  char **command = agent_command(&bundle, argc, argv);
  char **clean = agent_environment(&bundle, environment, agent_channel, container_score);

  block_signals(ALL_SIGNALS);
  /* The launcher may have inherited SIGCHLD as ignored. The kernel would then reap the agent and discard its status. */
  restore_default(SIGCHLD);
  if (getpid() != 1)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  pid_t agent = start_agent(command, clean);
  /*
   * Prevents other processes of the same user from tracing the launcher, because the inherited environment, which may
   * contain secrets, is in its memory.
   */
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  close(environment);
  close(agent_channel);

  int status = supervise(agent, channel);
  struct exit_report report = read_exit_report(channel);
  end_leftovers(report.session, agent, report.announced ? ORPHAN_GRACE_MS : CRASH_GRACE_MS);
  if (!report.announced)
    report_crash(status);
  exit_as(status);
}
