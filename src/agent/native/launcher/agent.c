/* Starts the agent as the launcher's child, supervises it, and exits as the agent did. */
#include "agent.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "signals.h"
#include "trace.h"

/*
 * Gives the agent a process group of its own (see start_agent). tcsetpgrp(3) may raise SIGTTOU, which has no effect
 * because it is blocked here.
 */
static void become_own_group(pid_t launcher_group) {
  setpgid(0, 0);
  if (tcgetpgrp(STDIN_FILENO) == launcher_group)
    tcsetpgrp(STDIN_FILENO, getpgrp());
}

pid_t start_agent(char **command, char **environment) {
  pid_t launcher_group = getpgrp();
  pid_t agent = fork();
  if (agent < 0)
    fail("cannot start a process for the agent");
  if (agent > 0)
    return agent;
  become_own_group(launcher_group);
  ignore_real_time_signals();
  block_signals(NO_SIGNALS);
  execve(command[0], command, environment);
  fail(command[0]);
}

/* Retry interval while the channel is full. */
#define RETRY_MS 50

/* Reaps all ended children. Returns true, with the status, if the agent was one of them. */
static bool reap(pid_t agent, int *status) {
  bool agent_ended = false;
  int ended_status;
  for (pid_t ended; (ended = waitpid(-1, &ended_status, WNOHANG)) > 0;) {
    trace_reaped(ended, ended_status);
    if (ended == agent) {
      *status = ended_status;
      agent_ended = true;
    }
  }
  return agent_ended;
}

/*
 * Sends a signal number to the agent. Returns false if the channel is full, so that the caller tries again. If the
 * agent has closed its end, it is about to exit and needs no signal, so the function returns true.
 */
static bool forward(int channel, uint8_t number) {
  return send(channel, &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
}

int supervise(pid_t agent, int channel) {
  uint8_t held = 0;
  int status = 0;
  for (;;) {
    siginfo_t info;
    /* While the channel is full, the launcher handles only SIGCHLD. Other signals stay pending in the kernel. */
    int number = held == 0 ? take_signal(ALL_SIGNALS, -1, &info) : take_signal(ONLY(SIGCHLD), RETRY_MS, &info);
    if (number == SIGCHLD && reap(agent, &status))
      return status;
    if (held == 0 && number > 0 && (number != SIGCHLD || sent_by_process(&info))) {
      held = (uint8_t)number;
      trace_signal(&info);
    }
    if (held != 0 && forward(channel, held))
      held = 0;
  }
}

/* The descriptor that a message carries (SCM_RIGHTS), or -1. */
static int descriptor_of(struct msghdr *message) {
  int descriptor = -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(message);
  if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

struct exit_report read_exit_report(int channel) {
  struct exit_report report = {.announced = false, .session = -1};
  for (;;) {
    char byte;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
      return report;
    int descriptor = descriptor_of(&message);
    if (descriptor >= 0)
      report.session = descriptor;
    else
      report.announced = true;
  }
}

_Noreturn void exit_as(int status) {
  if (!WIFSIGNALED(status))
    _exit(WEXITSTATUS(status));
  int number = WTERMSIG(status);
  /*
   * The launcher ends by the same signal as the agent, so that its parent sees how the agent ended. A core dump of the
   * launcher would be useless, so it is prevented.
   */
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  restore_default(number);
  block_signals(ALL_SIGNALS & ~ONLY(number));
  kill(getpid(), number);
  _exit(128 + number);
}
