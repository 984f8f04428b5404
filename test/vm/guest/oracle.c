/*
 * Says what this guest's kernel says. Listens on TCP 7070; a request is a line, its answer another:
 *   random   64 times 32 bytes of getrandom(2), in hex
 *   vdso     the same of the vDSO's getrandom (Linux 6.11 and later); or "none"
 *   clocks   CLOCK_REALTIME and CLOCK_BOOTTIME in nanoseconds
 *   reseed   makes the kernel's generator reseed from itself; 0 or the errno
 *   memory   bytes of the agent: anonymous ones and those of files that are resident, 0 where none runs, and those of its
 *            folder that are in the page cache
 * Small and static, so that two clones that are asked the same do the same. Many draws, because anything that draws in
 * between shifts a clone along the stream that it shares with the other one; 32 bytes each, one step of that stream.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <linux/random.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PORT 7070
#define BYTES 32
#define DRAWS 64
#define AGENT_FOLDER "/sandbox/opt/guest-agent"
/* Names of the kernel's vDSO differ by architecture. */
#ifdef __aarch64__
#define VDSO_GETRANDOM "__kernel_getrandom"
#else
#define VDSO_GETRANDOM "__vdso_getrandom"
#endif

/* include/uapi/linux/random.h, Linux 6.11. */
struct opaque_params {
  unsigned size, prot, flags, reserved[13];
};
typedef ssize_t vdso_getrandom(void *buffer, size_t length, unsigned flags, void *state, size_t state_length);

static vdso_getrandom *draw;
static void *state;
static size_t state_bytes;

/* The vDSO's symbol of that name, or NULL. Its tables are small: 64 entries are more than any has. */
static void *vdso_symbol(const char *name) {
  char *base = (char *)getauxval(AT_SYSINFO_EHDR);
  if (!base)
    return NULL;
  Elf64_Ehdr *header = (Elf64_Ehdr *)base;
  Elf64_Phdr *program = (Elf64_Phdr *)(base + header->e_phoff);
  Elf64_Sym *symbols = NULL;
  const char *strings = NULL;
  unsigned count = 64;
  for (int i = 0; i < header->e_phnum; i++) {
    if (program[i].p_type != PT_DYNAMIC)
      continue;
    for (Elf64_Dyn *entry = (Elf64_Dyn *)(base + program[i].p_offset); entry->d_tag; entry++) {
      if (entry->d_tag == DT_SYMTAB)
        symbols = (Elf64_Sym *)(base + entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB)
        strings = base + entry->d_un.d_ptr;
      if (entry->d_tag == DT_HASH)
        count = ((unsigned *)(base + entry->d_un.d_ptr))[1];
    }
  }
  for (unsigned i = 0; symbols && strings && i < count; i++)
    if (symbols[i].st_shndx && !strcmp(strings + symbols[i].st_name, name))
      return base + symbols[i].st_value;
  return NULL;
}

static void open_vdso(void) {
  struct opaque_params params = {0};
  draw = (vdso_getrandom *)vdso_symbol(VDSO_GETRANDOM);
  if (!draw || draw(NULL, 0, 0, &params, ~0UL)) {
    draw = NULL;
    return;
  }
  state_bytes = params.size;
  state = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), (int)params.prot, (int)params.flags, -1, 0);
  if (state == MAP_FAILED)
    draw = NULL;
}

static ssize_t from_kernel(void *bytes) {
  return syscall(SYS_getrandom, bytes, BYTES, 0);
}

static ssize_t from_vdso(void *bytes) {
  return draw ? draw(bytes, BYTES, 0, state, state_bytes) : 0;
}

/* All draws come first: what writing the answer does must not get in between. */
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

/* A line of /proc/PID/status, in bytes. */
static long status_bytes(const char *process, const char *name) {
  char path[300], line[128];
  long kibibytes = 0;
  snprintf(path, sizeof path, "%s/status", process);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name)))
      kibibytes = atol(line + strlen(name));
  if (file)
    fclose(file);
  return kibibytes * 1024;
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

static void answer_memory(FILE *out) {
  long anonymous = 0, of_files = 0;
  glob_t processes;
  if (!glob("/proc/[0-9]*", 0, NULL, &processes)) {
    for (size_t i = 0; i < processes.gl_pathc; i++) {
      char path[300], target[300] = "";
      snprintf(path, sizeof path, "%s/exe", processes.gl_pathv[i]);
      if (readlink(path, target, sizeof target - 1) < 0 || strncmp(target, AGENT_FOLDER, strlen(AGENT_FOLDER)))
        continue;
      anonymous += status_bytes(processes.gl_pathv[i], "RssAnon:");
      of_files += status_bytes(processes.gl_pathv[i], "RssFile:");
    }
    globfree(&processes);
  }
  cached_bytes = 0;
  nftw(AGENT_FOLDER, count_cached, 16, FTW_PHYS);
  fprintf(out, "%ld %ld %ld\n", anonymous, of_files, cached_bytes);
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
  else
    fputs("none\n", out);
  fflush(out);
}

int main(void) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  open_vdso();
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
    perror("oracle");
    return 1;
  }
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    FILE *questions = fdopen(fd, "r"), *answers = fdopen(dup(fd), "w");
    char line[64];
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
