/*
 * PID 1 of the test guest, in place of the substrate's init. Mounts, loads the modules of /modules.list, brings eth0 up
 * and starts the oracle, if there is one. Makes the container's root of /image (or of the disk that /image.disk names)
 * with the instance's disk above it, so that /run and /tmp survive a hard stop. Mounts the volumes of /volumes there.
 * Starts the stand-in for the substrate's own agent, with the command of /substrate.args and the instance's
 * environment, /instance.env. If that is ready within 10 s, launches the shell line of /entrypoint, with the same
 * environment. Forwards TERM, HUP, QUIT and INT to the entrypoint, reaps orphans, and switches the guest off when the
 * entrypoint has ended.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static void mount_at(const char *type, const char *path) {
  mkdir(path, 0755);
  if (mount(type, path, type, 0, NULL))
    perror(path);
}

/* The device appears some time after its driver was loaded. */
static void mount_disk(const char *name, const char *path, unsigned long flags) {
  char device[64];
  snprintf(device, sizeof device, "/dev/%s", name);
  for (int i = 0; i < 1000 && access(device, F_OK); i++)
    usleep(10000);
  mkdir(path, 0755);
  if (mount(device, path, "ext4", flags, NULL))
    perror(path);
}

/* What is written to `path` goes to the instance's disk, in a folder of that name. */
static void mount_above(const char *lower, const char *name, const char *path) {
  char folder[128], options[512];
  snprintf(options, sizeof options, "lowerdir=%s,upperdir=/disk/%s/upper,workdir=/disk/%s/work", lower, name, name);
  snprintf(folder, sizeof folder, "/disk/%s", name);
  mkdir(folder, 0755);
  strcat(folder, "/upper");
  mkdir(folder, 0755);
  snprintf(folder, sizeof folder, "/disk/%s/work", name);
  mkdir(folder, 0755);
  mkdir(path, 0755);
  if (mount("overlay", path, "overlay", 0, options))
    perror(path);
}

/* A folder with all that leads to it. */
static void make_folders(const char *path) {
  char part[256];
  snprintf(part, sizeof part, "%s", path);
  for (char *end = part + 1; (end = strchr(end, '/')); *end++ = '/') {
    *end = 0;
    mkdir(part, 0755);
  }
  mkdir(part, 0755);
}

/* A line of /volumes: the disk, where it goes, and "ro", "rw" or "overlay". */
static void mount_volume(const char *line) {
  char disk[16], where[200], how[16], path[256], below[32];
  if (sscanf(line, "%15s %199s %15s", disk, where, how) != 3)
    return;
  snprintf(path, sizeof path, "/sandbox%s", where);
  snprintf(below, sizeof below, "/volume-%s", disk);
  make_folders(path);
  if (strcmp(how, "overlay")) {
    mount_disk(disk, path, strcmp(how, "rw") ? MS_RDONLY : 0);
    return;
  }
  mount_disk(disk, below, MS_RDONLY);
  mount_above(below, disk, path);
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

static void await_interface(const char *name) {
  for (int i = 0; i < 1000 && if_nametoindex(name) == 0; i++)
    usleep(10000);
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

static void start_oracle(void) {
  if (access("/oracle", X_OK) == 0 && fork() == 0) {
    execl("/oracle", "/oracle", NULL);
    perror("/oracle");
    _exit(127);
  }
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

/*
 * In init's own session and process group, 0, and with a console that it can only write to. Without /bin/sh in the
 * image, prints so as the substrate's init does (hypeman 8853445, lib/system/init/mode_exec.go:138-141) and then does
 * nothing more. The substrate's ends, and its kernel panics and halts.
 */
static pid_t start_entrypoint(char *line, char **environment) {
  int ends[2], problem;
  if (pipe2(ends, O_CLOEXEC))
    perror("pipe2");
  pid_t pid = fork();
  if (pid != 0) {
    close(ends[1]);
    if (read(ends[0], &problem, sizeof problem) == sizeof problem) {
      printf("[ERROR] [init] failed to start entrypoint: fork/exec /bin/sh: %s\n", strerror(problem));
      for (;;)
        pause();
    }
    close(ends[0]);
    return pid;
  }
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
  problem = errno;
  _exit(write(ends[1], &problem, sizeof problem) == sizeof problem ? 127 : 1);
}

static pid_t entrypoint;

static void forward(int signal) {
  if (entrypoint > 0)
    kill(entrypoint, signal);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  mount_at("proc", "/proc");
  mount_at("devtmpfs", "/dev");
  int console = open("/dev/console", O_RDWR | O_CLOEXEC);
  dup2(console, 0);
  dup2(console, 1);
  dup2(console, 2);
  report_generator();
  for (char **module = lines_of("/modules.list"); *module; module++)
    load_module(*module);
  interface_up("lo", "127.0.0.1", "255.0.0.0");
  await_interface("eth0");
  interface_up("eth0", "10.0.2.15", "255.255.255.0");
  mount_disk("vda", "/disk", 0);
  for (char **image = lines_of("/image.disk"); *image; image++)
    mount_disk(*image, "/image", MS_RDONLY);
  mount_above("/image", "root", "/sandbox");
  for (char **volume = lines_of("/volumes"); *volume; volume++)
    mount_volume(*volume);
  mount_at("proc", "/sandbox/proc");
  mount_at("sysfs", "/sandbox/sys");
  mount_at("cgroup2", "/sandbox/sys/fs/cgroup");
  mount_at("devtmpfs", "/sandbox/dev");
  mount_at("devpts", "/sandbox/dev/pts");
  mkdir("/sandbox/dev/shm", 01777);
  start_oracle();
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
