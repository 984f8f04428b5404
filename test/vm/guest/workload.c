/*
 * The workload of the test guest. At SIGUSR1 it declares itself idle by one HTTP request on the socket of its
 * environment. It prints HUP, INT and QUIT on the console, and exits with 42 at SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STATUS 42

static const char REQUEST[] = "POST /svc.guest.v1alpha1.WorkloadService/DeclareIdle HTTP/1.1\r\n"
                              "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                              "Connection: close\r\n\r\n{}";

static void declare_idle(void) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = getenv("SVC_WORKLOAD_SOCKET");
  char answer[4096];
  strncpy(address.sun_path, path ? path : "", sizeof address.sun_path - 1);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) || write(fd, REQUEST, sizeof REQUEST - 1) < 0)
    perror("DeclareIdle");
  while (read(fd, answer, sizeof answer) > 0)
    ;
  close(fd);
}

int main(void) {
  sigset_t awaited;
  int received;
  sigemptyset(&awaited);
  for (const int *each = (const int[]){SIGUSR1, SIGHUP, SIGINT, SIGQUIT, SIGTERM, 0}; *each; each++)
    sigaddset(&awaited, *each);
  sigprocmask(SIG_BLOCK, &awaited, NULL);
  while (sigwait(&awaited, &received) == 0 && received != SIGTERM) {
    if (received == SIGUSR1)
      declare_idle();
    else
      fprintf(stderr, "WORKLOAD-GOT %s\n", sigabbrev_np(received));
  }
  return STATUS;
}
