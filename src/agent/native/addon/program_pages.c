/*
 * The code and constants of the program and its libraries, whose pages are the files' own: what the kernel reads of
 * them, and what it drops.
 */
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "code_pages.h"
#include "values.h"

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

/*
 * Advises the code and constants of the program and its libraries, whose pages are the files' own. Leaves alone
 * writable segments, where relocations lie, and every page that they touch.
 */
long agent_advise_code(int advice) {
  return dl_iterate_phdr(advise_object, &advice);
}
