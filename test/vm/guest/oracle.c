/*
 * Reports what this guest's kernel shows. Listens on TCP 7070; each request is a line, and so is its answer:
 * - random: 64 times 32 bytes from getrandom(2), in hex
 * - vdso: the same from the vDSO's getrandom (Linux 6.11 and later); or "none"
 * - clocks: CLOCK_REALTIME and CLOCK_BOOTTIME in nanoseconds
 * - reseed: makes the kernel's generator reseed from itself; 0 or the errno
 * - memory: resident bytes of the agent, anonymous ones and those of files (0 where none runs). Then those of its
 *   directory that are in the page cache
 * - forget: makes the kernel forget which pages the agent has written (soft-dirty, proc_pid_clear_refs(5)); 0 or the errno
 * - activity: wake-ups of all threads of the agent (proc_pid_status(5)), and pages that it has written since "forget"
 * - made: number of records that each thread of the drawer has made (test/vm/guest/drawer.c)
 * - halt: stops the drawer; then as "made"
 * - draws N…: up to 4,096 records of each thread, from its number N on, in hex. Each has thread, number, kernel, vDSO,
 *   seeded and clock
 * - beats: name and rounds of each hardship (test/vm/guest/hardship.c)
 * - kill WHO N: sends signal N to the agent or its launcher; 0 or the errno.
 * Small and static, so that two clones do the same for the same request. Many draws of 32 bytes, a step of the stream
 * that two clones share, because any other draw in between shifts a clone along it.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <linux/random.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "beats.h"
#include "draws.h"
#include "vdso.h"

#define PORT 7070
#define BYTES 32
#define DRAWS 64
#define MOST_TOLD 4096
#define AGENT_DIRECTORY "/sandbox/opt/guest-agent"

static struct vdso vdso;

static ssize_t from_kernel(void *bytes) {
  return syscall(SYS_getrandom, bytes, BYTES, 0);
}

static ssize_t from_vdso(void *bytes) {
  return vdso.draw ? vdso.draw(bytes, BYTES, 0, vdso.state, vdso.state_bytes) : 0;
}

/* All draws come first: writing the answer must not get in between. */
static void answer_draws(FILE *out, ssize_t (*source)(void *)) {
  static unsigned char drawn[DRAWS][BYTES];
  for (int i = 0; i < DRAWS; i++)
    if (source(drawn[i]) != BYTES) {
      fputs("none\n", out);
      return;
    }
  for (int i = 0; i < DRAWS; i++)
    for (int j = 0; j < BYTES; j++)
      fprintf(out, "%s%02x", i && !j ? " " : "", drawn[i][j]);
  fputc('\n', out);
}

static long long nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int reseed(void) {
  int device = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
  int error = device < 0 || ioctl(device, RNDRESEEDCRNG) ? errno : 0;
  close(device);
  return error;
}

/* The number of a line of /proc/PID/status. */
static long status_number(const char *process, const char *name) {
  char path[300], line[128];
  long number = 0;
  snprintf(path, sizeof path, "%s/status", process);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name)))
      number = atol(line + strlen(name));
  if (file)
    fclose(file);
  return number;
}

static long status_bytes(const char *process, const char *name) {
  return status_number(process, name) * 1024;
}

static long cached_bytes;

static int count_cached(const char *path, const struct stat *found, int type, struct FTW *at) {
  static unsigned char pages[1 << 16];
  (void)at;
  size_t size = (size_t)found->st_size, page = (size_t)sysconf(_SC_PAGESIZE);
  int file = type == FTW_F && size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0)
    return 0;
  void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED && (size + page - 1) / page <= sizeof pages && !mincore(map, size, pages))
    for (size_t i = 0; i < (size + page - 1) / page; i++)
      cached_bytes += pages[i] & 1 ? (long)page : 0;
  if (map != MAP_FAILED)
    munmap(map, size);
  close(file);
  return 0;
}

/* Calls `each` with /proc/PID of the agent and of its launcher. */
static void each_agent_process(void (*each)(const char *process)) {
  glob_t processes;
  if (glob("/proc/[0-9]*", 0, NULL, &processes))
    return;
  for (size_t i = 0; i < processes.gl_pathc; i++) {
    char path[300], target[300] = "";
    snprintf(path, sizeof path, "%s/exe", processes.gl_pathv[i]);
    if (readlink(path, target, sizeof target - 1) >= 0 && !strncmp(target, AGENT_DIRECTORY, strlen(AGENT_DIRECTORY)))
      each(processes.gl_pathv[i]);
  }
  globfree(&processes);
}

static long wake_ups, written_pages;
static int forget_error;

static void forget_written(const char *process) {
  char path[300];
  snprintf(path, sizeof path, "%s/clear_refs", process);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0 || write(file, "4", 1) != 1)
    forget_error = errno;
  close(file);
}

/* An entry of /proc/PID/pagemap has bit 55 if the page was written since "forget" (Documentation/admin-guide/mm). */
static void add_written(const char *process) {
  char path[300], line[300];
  unsigned long start, end;
  long page = sysconf(_SC_PAGESIZE);
  snprintf(path, sizeof path, "%s/pagemap", process);
  int pagemap = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "%s/maps", process);
  FILE *maps = fopen(path, "re");
  while (maps && pagemap >= 0 && fgets(line, sizeof line, maps)) {
    char allowed[8];
    if (sscanf(line, "%lx-%lx %7s", &start, &end, allowed) != 3 || allowed[1] != 'w')
      continue;
    for (unsigned long at = start; at < end; at += (unsigned long)page) {
      uint64_t entries[512];
      size_t wanted = (end - at) / (unsigned long)page < 512 ? (end - at) / (unsigned long)page : 512;
      ssize_t got = pread(pagemap, entries, wanted * sizeof *entries, (off_t)(at / (unsigned long)page * sizeof *entries));
      if (got <= 0)
        break;
      for (size_t i = 0; i < (size_t)got / sizeof *entries; i++)
        written_pages += (long)(entries[i] >> 55 & 1);
      at += ((unsigned long)got / sizeof *entries - 1) * (unsigned long)page;
    }
  }
  if (maps)
    fclose(maps);
  close(pagemap);
}

static void add_activity(const char *process) {
  char pattern[300];
  glob_t threads;
  snprintf(pattern, sizeof pattern, "%s/task/[0-9]*", process);
  if (!glob(pattern, 0, NULL, &threads)) {
    for (size_t i = 0; i < threads.gl_pathc; i++)
      wake_ups += status_number(threads.gl_pathv[i], "voluntary_ctxt_switches:");
    globfree(&threads);
  }
  add_written(process);
}

static void answer_forget(FILE *out) {
  forget_error = 0;
  each_agent_process(forget_written);
  fprintf(out, "%d\n", forget_error);
}

static void answer_activity(FILE *out) {
  wake_ups = written_pages = 0;
  each_agent_process(add_activity);
  fprintf(out, "%ld %ld\n", wake_ups, written_pages);
}

static long anonymous_bytes, file_bytes;

static void add_memory(const char *process) {
  anonymous_bytes += status_bytes(process, "RssAnon:");
  file_bytes += status_bytes(process, "RssFile:");
}

static void answer_memory(FILE *out) {
  anonymous_bytes = file_bytes = cached_bytes = 0;
  each_agent_process(add_memory);
  nftw(AGENT_DIRECTORY, count_cached, 16, FTW_PHYS);
  fprintf(out, "%ld %ld %ld\n", anonymous_bytes, file_bytes, cached_bytes);
}

static struct draws *drawn(void) {
  int file = open("/sandbox" DRAWS_FILE, O_RDWR | O_CLOEXEC);
  void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct draws), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return map == MAP_FAILED ? NULL : map;
}

static void answer_made(FILE *out, int halt) {
  struct draws *all = drawn();
  if (all && halt) {
    all->halted = 1;
    /* A thread may be in the middle of a record. */
    usleep(100000);
  }
  for (int i = 0; all && i < THREADS; i++)
    fprintf(out, "%s%llu", i ? " " : "", (unsigned long long)all->threads[i].made);
  fputc('\n', out);
  if (all)
    munmap(all, sizeof *all);
}

static void answer_draws_from(FILE *out, const char *numbers) {
  struct draws *all = drawn();
  char *rest = (char *)numbers;
  for (int i = 0; all && i < THREADS; i++) {
    uint64_t made = all->threads[i].made, from = strtoull(rest, &rest, 10);
    for (uint64_t n = from; n < made && n < from + MOST_TOLD; n++) {
      const struct record *one = &all->threads[i].kept[n % KEPT];
      fprintf(out, "%d:%llx:%llx:%llx:%llx:%llx ", i, (unsigned long long)n, (unsigned long long)one->kernel,
              (unsigned long long)one->vdso, (unsigned long long)one->seeded, (unsigned long long)one->clock);
    }
  }
  fputc('\n', out);
  if (all)
    munmap(all, sizeof *all);
}

static void answer_beats(FILE *out) {
  int file = open("/sandbox" BEATS_FILE, O_RDONLY | O_CLOEXEC);
  struct beats *all = mmap(NULL, sizeof *all, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  for (int i = 0; all != MAP_FAILED && i < BEATS && all->of[i].name[0]; i++)
    fprintf(out, "%s%s %llu", i ? " " : "", all->of[i].name, (unsigned long long)all->of[i].rounds);
  fputc('\n', out);
  if (all != MAP_FAILED)
    munmap(all, sizeof *all);
}

/* The name of its session's cgroup has the agent's id; the launcher is the agent's parent. */
static void answer_kill(FILE *out, const char *what) {
  char who[16] = "", path[64];
  int number = 0, agent = 0, process = 0;
  glob_t found;
  if (sscanf(what, "%15s %d", who, &number) == 2 && !glob("/sandbox/sys/fs/cgroup/svc-guest-*-session", 0, NULL, &found)) {
    sscanf(strrchr(found.gl_pathv[0], '/'), "/svc-guest-%d-session", &agent);
    globfree(&found);
  }
  snprintf(path, sizeof path, "/proc/%d/stat", agent);
  FILE *file = agent ? fopen(path, "re") : NULL;
  if (!file || fscanf(file, "%*d (%*[^)]) %*c %d", &process) != 1)
    process = -1;
  if (file)
    fclose(file);
  if (!strcmp(who, "agent"))
    process = agent;
  fprintf(out, "%d\n", process <= 1 ? ESRCH : kill(process, number) ? errno : 0);
}

static void answer(FILE *out, const char *question) {
  if (!strcmp(question, "random"))
    answer_draws(out, from_kernel);
  else if (!strcmp(question, "vdso"))
    answer_draws(out, from_vdso);
  else if (!strcmp(question, "clocks"))
    fprintf(out, "%lld %lld\n", nanoseconds(CLOCK_REALTIME), nanoseconds(CLOCK_BOOTTIME));
  else if (!strcmp(question, "reseed"))
    fprintf(out, "%d\n", reseed());
  else if (!strcmp(question, "memory"))
    answer_memory(out);
  else if (!strcmp(question, "forget"))
    answer_forget(out);
  else if (!strcmp(question, "activity"))
    answer_activity(out);
  else if (!strcmp(question, "made") || !strcmp(question, "halt"))
    answer_made(out, *question == 'h');
  else if (!strncmp(question, "draws ", 6))
    answer_draws_from(out, question + 6);
  else if (!strcmp(question, "beats"))
    answer_beats(out);
  else if (!strncmp(question, "kill ", 5))
    answer_kill(out, question + 5);
  else
    fputs("none\n", out);
  fflush(out);
}

int main(void) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  vdso = open_vdso();
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
    perror("oracle");
    return 1;
  }
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    FILE *questions = fdopen(fd, "r"), *answers = fdopen(dup(fd), "w");
    char line[256];
    while (questions && answers && fgets(line, sizeof line, questions)) {
      line[strcspn(line, "\n")] = 0;
      answer(answers, line);
    }
    if (answers)
      fclose(answers);
    if (questions)
      fclose(questions);
  }
}
