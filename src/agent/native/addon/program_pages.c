/*
 * The code and constants of the program and its libraries, whose pages are the files' own: what the kernel reads of
 * them, and what it drops.
 */
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "code_pages.h"
#include "values.h"

/* What a start takes: 28 MB of files, and 16 MB of its own. */
#define START_KIB (44 * 1024)

/* The kernel reads no page but the touched one, without being asked to. */
static bool reads_only_touched;

/* Whether these are the pages that the kernel maps into every process, which belong to no file. */
static bool is_kernels_own(const struct dl_phdr_info *object) {
  unsigned long header = getauxval(AT_SYSINFO_EHDR);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type == PT_LOAD && object->dlpi_addr + object->dlpi_phdr[i].p_vaddr == header) return true;
  }
  return false;
}

static int advise_object(struct dl_phdr_info *object, size_t size, void *advice) {
  (void)size;
  if (is_kernels_own(object)) return 0;
  uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < object->dlpi_phnum; i++) {
    struct page_range pages = code_pages(object->dlpi_phdr, object->dlpi_phnum, i, page_bytes);
    if (pages.start == pages.end) continue;
    if (madvise((void *)(object->dlpi_addr + pages.start), pages.end - pages.start, *(const int *)advice) < 0) return -1;
  }
  return 0;
}

/* Maps a file's part again in its place: through a new opening, with what the disk's setting is now. */
static int map_again(struct dl_phdr_info *object, size_t size, void *program) {
  (void)size;
  if (is_kernels_own(object)) return 0;
  int fd = open(*object->dlpi_name != '\0' ? object->dlpi_name : program, O_RDONLY | O_CLOEXEC);
  uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; fd >= 0 && i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    struct page_range pages = code_pages(object->dlpi_phdr, object->dlpi_phnum, i, page_bytes);
    if (pages.start == pages.end) continue;
    int protection = PROT_READ | ((segment->p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    off_t offset = (off_t)(segment->p_offset + pages.start - segment->p_vaddr);
    mmap((void *)(object->dlpi_addr + pages.start), pages.end - pages.start, protection, MAP_PRIVATE | MAP_FIXED, fd,
         offset);
  }
  close_after(fd);
  return 0;
}

/* The setting of a file's disk; a partition's is in the folder above its own. -1: there is none. */
static int open_read_ahead(const char *path) {
  struct stat file;
  int fd = -1;
  if (stat(path, &file) < 0) return -1;
  for (const char *const *folder = (const char *[]){"", "../", NULL}; fd < 0 && *folder != NULL; folder++) {
    char setting[64];
    snprintf(setting, sizeof setting, "/sys/dev/block/%u:%u/%squeue/read_ahead_kb", major(file.st_dev),
             minor(file.st_dev), *folder);
    fd = open(setting, O_RDWR | O_CLOEXEC);
    if (fd < 0) fd = open(setting, O_RDONLY | O_CLOEXEC);
  }
  return fd;
}

/* Without /proc as if there were enough. */
static long available_kib(void) {
  long kib = START_KIB;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) sscanf(line, "MemAvailable: %ld", &kib);
  if (file != NULL) fclose(file);
  return kib;
}

/*
 * Where a start does not fit into memory, pages are dropped and read again. How often depends on two things: that the
 * kernel reads nothing around a page, and that it sees which pages are used. MADV_RANDOM gives the first and takes the
 * second (vma_has_recency of include/linux/mm_inline.h, Linux 6.3 and later). Files that were opened with a read-ahead
 * of 0 have both, and each takes that from its disk when it is opened (file_ra_state_init of mm/readahead.c). So the
 * files are opened again while the setting is 0, before the program's first instruction. Whoever opens a file of that
 * disk in this millisecond gets the same, and the setting stays if the agent is killed in it. Not for the bridge: it runs
 * beside the workload, and two of them would take the other's 0 for the usual setting.
 */
__attribute__((constructor)) static void read_only_touched(int argc, char **argv) {
  const char *folder = getenv("GUEST_AGENT_DIR");
  char program[PATH_MAX], usual[16];
  if (folder == NULL || (argc > 1 && strcmp(argv[1], "run") != 0)) return;
  if (snprintf(program, sizeof program, "%s/agent.bin", folder) >= PATH_MAX || available_kib() >= START_KIB) return;
  int setting = open_read_ahead(program);
  ssize_t length = setting < 0 ? -1 : read(setting, usual, sizeof usual);
  if (length > 0 && *usual == '0') {
    reads_only_touched = true;
  } else if (length > 0 && pwrite(setting, "0", 1, 0) == 1) {
    dl_iterate_phdr(map_again, program);
    reads_only_touched = pwrite(setting, usual, (size_t)length, 0) == length;
  }
  close_after(setting);
}

/*
 * Advises the code and constants of the program and its libraries, whose pages are the files' own. Leaves alone
 * writable segments, where relocations lie, and every page that they touch.
 */
long agent_advise_code(int advice) {
  if (advice == MADV_RANDOM && reads_only_touched) return 0;
  return dl_iterate_phdr(advise_object, &advice);
}
