/*
 * Calls madvise(2) for the mapped code and constants of the program and its libraries, to change their read-ahead or to
 * drop their pages.
 */
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "code_pages.h"
#include "values.h"

/* Whether the object is the vDSO, which the kernel maps into every process, and which has no file. */
static bool is_vdso(const struct dl_phdr_info *object) {
  unsigned long header = getauxval(AT_SYSINFO_EHDR);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && object->dlpi_addr + segment->p_vaddr == header) return true;
  }
  return false;
}

static int advise_object(struct dl_phdr_info *object, size_t size, void *advice) {
  (void)size;
  if (is_vdso(object)) return 0;
  uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < object->dlpi_phnum; i++) {
    struct page_range pages = code_pages(object->dlpi_phdr, object->dlpi_phnum, i, page_bytes);
    if (pages.start == pages.end) continue;
    void *start = (void *)(object->dlpi_addr + pages.start);
    if (madvise(start, pages.end - pages.start, *(const int *)advice) < 0) return -1;
  }
  return 0;
}

/*
 * Calls madvise(2) with `advice`, but only for pages that are never written. Other pages may contain relocations, which
 * would be lost if the pages were dropped.
 */
long agent_advise_code(int advice) {
  return dl_iterate_phdr(advise_object, &advice);
}
