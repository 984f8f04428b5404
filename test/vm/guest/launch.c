/*
 * PID 1 of the test guest once init.sh has made the container's root, /sandbox. Starts the stand-in for the substrate's
 * own agent there, with the command of /substrate.args and the instance's environment, /instance.env. If that is ready
 * within 10 s, launches the shell line of /entrypoint, with the same environment. Forwards TERM, HUP, QUIT and INT to the
 * entrypoint, reaps orphans, and switches the guest off when the entrypoint has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define MOST_LINES 512
#define READY_LIMIT_MS 10000

/* The lines of a file, ended by NULL, with room for two more; none when there is no such file. */
static char **lines_of(const char *path) {
  char **lines = calloc(MOST_LINES + 3, sizeof *lines);
  FILE *file = fopen(path, "re");
  size_t size = 0;
  if (lines == NULL)
    abort();
  for (int n = 0; file && n < MOST_LINES; n++) {
    ssize_t length = getline(&lines[n], &size, file);
    size = 0;
    if (length <= 0) {
      lines[n] = NULL;
      break;
    }
    if (lines[n][length - 1] == '\n')
      lines[n][length - 1] = 0;
  }
  if (file)
    fclose(file);
  return lines;
}

/* Prints whether the kernel's generator is ready, and the result of a forced reseed: for tests of the guest's start. */
static void report_generator(void) {
  char byte;
  int ready = getrandom(&byte, 1, GRND_NONBLOCK) == 1;
  int device = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
  int error = ioctl(device, RNDRESEEDCRNG) ? errno : 0;
  printf("GUEST-GENERATOR %s, reseed %s\n", ready ? "ready" : "not ready", strerrorname_np(error));
  close(device);
}

static void power_off(void) {
  sync();
  /* The console's last line is still in the serial port: without this the machine may end before it. */
  tcdrain(STDOUT_FILENO);
  reboot(RB_POWER_OFF);
}

/* Starts the substrate's agent, which writes to descriptor 3 when it is ready. Returns whether it did in time. */
static int start_substrate(char **args, char **environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return 0;
  if (fork() == 0) {
    dup2(ends[1], 3);
    fcntl(3, F_SETFD, 0);
    execve(args[0], args, environment);
    perror(args[0]);
    _exit(127);
  }
  close(ends[1]);
  struct pollfd look = {.fd = ends[0], .events = POLLIN};
  char byte;
  int ready = poll(&look, 1, READY_LIMIT_MS) == 1 && read(ends[0], &byte, 1) == 1;
  close(ends[0]);
  return ready;
}

/* PATH and HOME are added where the instance names none. */
static char **with_defaults(char **environment) {
  int path = 0, home = 0, count = 0;
  for (; environment[count]; count++) {
    path |= !strncmp(environment[count], "PATH=", 5);
    home |= !strncmp(environment[count], "HOME=", 5);
  }
  if (!path)
    environment[count++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  if (!home)
    environment[count++] = "HOME=/root";
  return environment;
}

/* In init's own session and process group, 0, and with a console that it can only write to. */
static pid_t start_entrypoint(char *line, char **environment) {
  pid_t pid = fork();
  if (pid != 0)
    return pid;
  struct rlimit files = {.rlim_cur = 1024, .rlim_max = 4096};
  int console = open("/dev/console", O_WRONLY | O_NOCTTY);
  int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(console, 1);
  dup2(console, 2);
  close(nothing);
  close(console);
  setrlimit(RLIMIT_NOFILE, &files);
  execve("/bin/sh", (char *[]){"/bin/sh", "-c", line, NULL}, environment);
  perror("/bin/sh");
  _exit(127);
}

static pid_t entrypoint;

static void forward(int signal) {
  if (entrypoint > 0)
    kill(entrypoint, signal);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  report_generator();
  char **environment = lines_of("/instance.env"), **line = lines_of("/entrypoint");
  char **substrate = lines_of("/substrate.args");
  if (chroot("/sandbox") || chdir("/"))
    perror("/sandbox");
  if (*substrate && !start_substrate(substrate, environment)) {
    printf("GUEST-SUBSTRATE-NOT-READY\n");
    power_off();
  }
  for (const int *each = (const int[]){SIGTERM, SIGHUP, SIGQUIT, SIGINT, 0}; *each; each++)
    signal(*each, forward);
  entrypoint = start_entrypoint(*line, with_defaults(environment));
  printf("GUEST-ENTRYPOINT-STARTED\n");
  for (;;) {
    int status;
    if (wait(&status) == entrypoint) {
      if (WIFEXITED(status))
        printf("GUEST-ENTRYPOINT-ENDED exit %d\n", WEXITSTATUS(status));
      else
        printf("GUEST-ENTRYPOINT-ENDED signal %d\n", WTERMSIG(status));
      power_off();
    }
  }
}
