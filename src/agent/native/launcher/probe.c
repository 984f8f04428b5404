#include "probe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#define VARIABLE "SVC_PROBE_SOCKET"
/* Timeout in seconds of connect(2), and of each recv(2). An agent that the host has frozen, or that gets no CPU time, does not answer. */
#define LIMIT_S 5

static int refuse(const char *problem) {
  dprintf(STDERR_FILENO, "guest-agent: probe: %s\nusage: guest-agent probe [--ready] [SOCKET]\n", problem);
  return EX_USAGE;
}

static int no_answer(const char *path, const char *step) {
  const char *reason = errno == EAGAIN ? "no answer within 5 s" : strerror(errno);
  dprintf(STDERR_FILENO, "guest-agent: probe: cannot %s %s: %s\n", step, path, reason);
  return EXIT_FAILURE;
}

/* Reads the first line. Returns false with errno if no complete line arrives. */
static bool read_line(int connection, char *line, size_t size) {
  size_t length = 0;
  while (length < size - 1) {
    ssize_t got = recv(connection, line + length, size - 1 - length, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return false;
    if (got == 0)
      break;
    length += (size_t)got;
    line[length] = '\0';
    char *end = strchr(line, '\n');
    if (end != NULL) {
      *end = '\0';
      return true;
    }
  }
  errno = EPROTO;
  return false;
}

static int ask(const char *path, bool wants_ready) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    return refuse("the socket's path is too long (at most 107 bytes)");
  memcpy(address.sun_path, path, strlen(path) + 1);
  int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  /* This timeout also applies to connect(2), which blocks while the agent's backlog is full. */
  struct timeval limit = {.tv_sec = LIMIT_S};
  if (connection < 0 || setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
      setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
    return no_answer(path, "open a socket for");
  if (connect(connection, (struct sockaddr *)&address, sizeof address) < 0)
    return no_answer(path, "connect to");
  char line[64];
  if (!read_line(connection, line, sizeof line))
    return no_answer(path, "read from");
  if (strcmp(line, "alive ready") == 0)
    return EXIT_SUCCESS;
  if (strcmp(line, "alive not-ready") == 0) {
    if (!wants_ready)
      return EXIT_SUCCESS;
    dprintf(STDERR_FILENO, "guest-agent: probe: the workload is not ready\n");
    return EXIT_FAILURE;
  }
  dprintf(STDERR_FILENO, "guest-agent: probe: %s is not the probe socket of an agent\n", path);
  return EXIT_FAILURE;
}

int probe(int argc, char **argv) {
  const char *path = NULL;
  bool wants_ready = false;
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--ready") == 0)
      wants_ready = true;
    else if (argv[i][0] == '-' || path != NULL)
      return refuse("unknown argument");
    else
      path = argv[i];
  }
  if (path == NULL)
    path = getenv(VARIABLE);
  if (path == NULL || path[0] == '\0')
    return refuse(VARIABLE " is not set; set it for the agent and the probe, or give the path of the socket");
  return ask(path, wants_ready);
}
