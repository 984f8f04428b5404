/*
 * PID 1 of the test guest: what the substrate's init does. Mounts, loads the modules of /modules.list, brings eth0 up,
 * starts the oracle, goes into the container's root, /sandbox, starts the stand-in for the substrate's own agent there,
 * with the command of /substrate.args, and launches the entrypoint of /agent.args as a child, with the environment of
 * /agent.env and without the capabilities of /agent.drop (a line each). Forwards SIGTERM to the entrypoint, and switches
 * the guest off when that has ended.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_LINES 64

/* The lines of a file, ended by NULL; none when there is no such file. */
static char **lines_of(const char *path) {
  char **lines = calloc(MOST_LINES + 1, sizeof *lines);
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

static void mount_at(const char *type, const char *path) {
  mkdir(path, 0755);
  if (mount(type, path, type, 0, NULL))
    perror(path);
}

static void load_module(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/modules/%s", name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || syscall(SYS_finit_module, file, "", 0))
    perror(path);
  close(file);
}

static void interface_up(const char *name, const char *address, const char *mask) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {0};
  struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  in->sin_family = AF_INET;
  inet_aton(address, &in->sin_addr);
  if (ioctl(fd, SIOCSIFADDR, &request))
    perror(name);
  inet_aton(mask, &in->sin_addr);
  ioctl(fd, SIOCSIFNETMASK, &request);
  ioctl(fd, SIOCGIFFLAGS, &request);
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
}

/* The device appears some time after its driver was loaded. */
static void await_interface(const char *name) {
  for (int i = 0; i < 1000 && if_nametoindex(name) == 0; i++)
    usleep(10000);
}

/* Whether the kernel's generator is ready, and what a forced reseed says: for the one that asks how a guest began. */
static void report_generator(void) {
  char byte;
  int ready = getrandom(&byte, 1, GRND_NONBLOCK) == 1;
  int device = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
  int error = ioctl(device, RNDRESEEDCRNG) ? errno : 0;
  printf("GUEST-GENERATOR %s, reseed %s\n", ready ? "ready" : "not ready", strerrorname_np(error));
  close(device);
}

static void start_program(char **args) {
  if (fork() == 0) {
    execv(args[0], args);
    perror(args[0]);
    _exit(127);
  }
}

static pid_t start_entrypoint(char **args, char **environment, char **drop) {
  pid_t pid = fork();
  if (pid != 0)
    return pid;
  setsid();
  for (; *drop; drop++)
    if (prctl(PR_CAPBSET_DROP, atoi(*drop), 0, 0, 0))
      perror("PR_CAPBSET_DROP");
  execve(args[0], args, environment);
  perror(args[0]);
  _exit(127);
}

static pid_t entrypoint;

static void forward(int signal) {
  kill(entrypoint, signal);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  mount_at("proc", "/proc");
  mount_at("devtmpfs", "/dev");
  int console = open("/dev/console", O_RDWR);
  dup2(console, 0);
  dup2(console, 1);
  dup2(console, 2);
  report_generator();
  for (char **module = lines_of("/modules.list"); *module; module++)
    load_module(*module);
  interface_up("lo", "127.0.0.1", "255.0.0.0");
  await_interface("eth0");
  interface_up("eth0", "10.0.2.15", "255.255.255.0");
  mount_at("proc", "/sandbox/proc");
  mount_at("sysfs", "/sandbox/sys");
  mount_at("cgroup2", "/sandbox/sys/fs/cgroup");
  mount_at("devtmpfs", "/sandbox/dev");
  mount_at("devpts", "/sandbox/dev/pts");
  mount_at("tmpfs", "/sandbox/tmp");
  mount_at("tmpfs", "/sandbox/run");
  start_program((char *[]){"/oracle", NULL});
  char **args = lines_of("/agent.args"), **environment = lines_of("/agent.env"), **drop = lines_of("/agent.drop");
  char **substrate = lines_of("/substrate.args");
  if (chroot("/sandbox") || chdir("/"))
    perror("/sandbox");
  start_program(substrate);
  entrypoint = start_entrypoint(args, environment, drop);
  signal(SIGTERM, forward);
  for (;;) {
    int status;
    if (wait(&status) == entrypoint) {
      if (WIFEXITED(status))
        printf("GUEST-ENTRYPOINT-ENDED exit %d\n", WEXITSTATUS(status));
      else
        printf("GUEST-ENTRYPOINT-ENDED signal %d\n", WTERMSIG(status));
      sync();
      reboot(RB_POWER_OFF);
    }
  }
}
