/*
 * Stands in for the substrate's own agent, which lives in the same guest beside ours: on a channel of the hypervisor it
 * runs a command for whoever connects, its standard input and output being the channel. Here the channel is the first
 * port of virtio-serial, and the command its own arguments; without one it only lives. With --on-the-port before it the
 * command gets the port itself for its standard input and output, else a socket that is joined to the port. Says on the
 * console when it waits for the host, who could not know: what comes before that is lost. With --console alone it does what
 * the host writes to the console: "stop" is SIGTERM for init. Writes a byte to descriptor 3 once it lives, which init waits
 * for; with --never-ready it lives and does not say so.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

/* A port whose other end nobody holds says POLLHUP. */
static void await_host(int port) {
  struct pollfd look = {.fd = port, .events = POLLIN};
  while (poll(&look, 1, -1) < 0 || (look.revents & POLLHUP))
    usleep(PAUSE_US);
}

static void pump(int from, int to) {
  char bytes[65536];
  ssize_t count;
  while ((count = read(from, bytes, sizeof bytes)) > 0)
    for (ssize_t done = 0, written; done < count; done += written)
      if ((written = write(to, bytes + done, (size_t)(count - done))) < 0)
        return;
}

static pid_t start(char **command, int stream) {
  pid_t pid = fork();
  if (pid != 0)
    return pid;
  dup2(stream, STDIN_FILENO);
  dup2(stream, STDOUT_FILENO);
  execv(command[0], command);
  perror(command[0]);
  _exit(127);
}

/* Each direction is a process of its own: neither waits for the other, and what blocks can be killed. */
static pid_t start_pump(int from, int to) {
  pid_t pid = fork();
  if (pid == 0) {
    pump(from, to);
    _exit(0);
  }
  return pid;
}

/* Until either side has ended. What the other one still had to say is lost with it, as on any broken connection. */
static void serve(int port, char **command) {
  int streams[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, streams))
    return;
  pid_t child = start(command, streams[1]);
  close(streams[1]);
  pid_t to_command = start_pump(port, streams[0]), to_host = start_pump(streams[0], port);
  close(streams[0]);
  while (wait(NULL) == child)
    ;
  kill(to_command, SIGKILL);
  kill(to_host, SIGKILL);
  kill(child, SIGTERM);
  while (wait(NULL) > 0)
    ;
}

static void serve_directly(int port, char **command) {
  start(command, port);
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
  if (argc > 1 && !strcmp(argv[1], "--never-ready"))
    for (;;)
      pause();
  int directly = argc > 1 && !strcmp(argv[1], "--on-the-port");
  int obeys = argc > 1 && !strcmp(argv[1], "--console");
  char **command = argv + 1 + directly + obeys;
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
    (directly ? serve_directly : serve)(port, command);
    /* The kernel drops what had come in and was not read. */
    close(port);
  }
  for (;;)
    pause();
}
