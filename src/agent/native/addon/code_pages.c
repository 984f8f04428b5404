/* Segments start and end anywhere in a page (elf(5)), so two segments can share a page. */
#include "code_pages.h"

static struct page_range touched_by(const ElfW(Phdr) *segment, uintptr_t page_bytes) {
  uintptr_t start = segment->p_vaddr & ~(page_bytes - 1);
  uintptr_t end = (segment->p_vaddr + segment->p_memsz + page_bytes - 1) & ~(page_bytes - 1);
  return (struct page_range){start, end};
}

struct page_range code_pages(const ElfW(Phdr) *segments, size_t count, size_t index, uintptr_t page_bytes) {
  struct page_range pages = touched_by(&segments[index], page_bytes);
  if (segments[index].p_type != PT_LOAD || (segments[index].p_flags & PF_W) != 0) pages.end = pages.start;
  for (size_t i = 0; i < count; i++) {
    if (segments[i].p_type != PT_LOAD || (segments[i].p_flags & PF_W) == 0) continue;
    /*
     * Leaves out pages that are shared with a writable segment. They may contain changes, which would be lost if the
     * pages were dropped.
     */
    struct page_range written = touched_by(&segments[i], page_bytes);
    if (written.start <= pages.start) pages.start = written.end > pages.start ? written.end : pages.start;
    else if (written.start < pages.end) pages.end = written.start;
  }
  return pages.end > pages.start ? pages : (struct page_range){pages.start, pages.start};
}
