/*
 * Stands in for the substrate's own agent, which runs in the same guest beside ours. That agent runs a command for each
 * connection on a channel of the hypervisor, with the channel as standard input and output. Here the channel is the
 * first port of virtio-serial, and the arguments are the command; without arguments it does nothing. Prints on the
 * console when it waits for the host: bytes from before that are lost. With --console alone it obeys the host's words on
 * the console: "stop" sends SIGTERM to init. Writes a byte to descriptor 3 when it is ready, for which init waits.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTEMPTS 200
#define PAUSE_US 20000
#define READY_FD 3

/* The device appears some time after its driver was loaded. */
static int open_port(void) {
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    DIR *devices = opendir("/dev");
    struct dirent *entry;
    char path[300] = "";
    while (devices && (entry = readdir(devices)))
      if (!strncmp(entry->d_name, "vport", 5))
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
    if (devices)
      closedir(devices);
    if (*path)
      return open(path, O_RDWR | O_CLOEXEC);
    usleep(PAUSE_US);
  }
  return -1;
}

/* A port without a peer reports POLLHUP. */
static void await_host(int port) {
  struct pollfd look = {.fd = port, .events = POLLIN};
  while (poll(&look, 1, -1) < 0 || (look.revents & POLLHUP))
    usleep(PAUSE_US);
}

/* Runs the command until it ends. */
static void serve(int port, char **command) {
  if (fork() == 0) {
    dup2(port, STDIN_FILENO);
    dup2(port, STDOUT_FILENO);
    execv(command[0], command);
    perror(command[0]);
    _exit(127);
  }
  wait(NULL);
}

static void obey_console(void) {
  FILE *console = fopen("/dev/console", "re");
  char line[64];
  while (console && fgets(line, sizeof line, console))
    if (!strcmp(line, "stop\n"))
      kill(getppid(), SIGTERM);
  if (console)
    fclose(console);
}

int main(int argc, char **argv) {
  int obeys = argc > 1 && !strcmp(argv[1], "--console");
  char **command = argv + 1 + obeys;
  signal(SIGPIPE, SIG_IGN);
  if (write(READY_FD, "", 1) != 1)
    perror("ready");
  close(READY_FD);
  if (obeys)
    obey_console();
  while (*command) {
    int port = open_port();
    fputs("SUBSTRATE-WAITS\n", stderr);
    await_host(port);
    serve(port, command);
    /* The kernel drops what has arrived unread. */
    close(port);
  }
  for (;;)
    pause();
}
