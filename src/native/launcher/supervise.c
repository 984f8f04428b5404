#include "supervise.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "signals.h"

/* How soon a full channel is tried again. */
#define RETRY_MS 50

/* Reaps all that have ended; true, with its status, when the agent was among them. */
static bool reap(pid_t agent, int *status) {
  bool agent_ended = false;
  int ended_status;
  for (pid_t ended; (ended = waitpid(-1, &ended_status, WNOHANG)) > 0;) {
    if (ended == agent) {
      *status = ended_status;
      agent_ended = true;
    }
  }
  return agent_ended;
}

/* False while the channel is full. An agent that closed its end is about to end: that counts as passed on. */
static bool pass_on(int channel, uint8_t number) {
  return send(channel, &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
}

int supervise(pid_t agent, int channel) {
  uint8_t held = 0;
  int status = 0;
  for (;;) {
    siginfo_t info;
    /* While a signal is held back by a full channel the others stay queued in the kernel, so none is lost. */
    int number = held == 0 ? take_signal(ALL_SIGNALS, -1, &info) : take_signal(ONLY(SIGCHLD), RETRY_MS, &info);
    if (number == SIGCHLD && reap(agent, &status))
      return status;
    if (held == 0 && number > 0 && (number != SIGCHLD || sent_by_process(&info)))
      held = (uint8_t)number;
    if (held != 0 && pass_on(channel, held))
      held = 0;
  }
}
