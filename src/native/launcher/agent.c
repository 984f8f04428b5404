#include "agent.h"

#include <stdio.h>
#include <unistd.h>

#include "failure.h"
#include "signals.h"

/* Only the foreground group may hand the terminal on; SIGTTOU, which tcsetpgrp(3) can raise, is blocked here. */
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
