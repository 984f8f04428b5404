/*
 * Computes which memory of a program or library can be returned to the kernel. The build uses the same code for the
 * files that it ships (scripts/package/code-pages.c).
 */
#ifndef AGENT_CODE_PAGES_H
#define AGENT_CODE_PAGES_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* A range of addresses. It contains `start` but not `end`. */
struct page_range {
  uintptr_t start;
  uintptr_t end;
};

/*
 * Returns the pages of a read-only PT_LOAD segment, as addresses of the file (p_vaddr). Pages that it shares with a
 * writable segment are left out. The range is empty for every other segment.
 */
struct page_range code_pages(const ElfW(Phdr) *segments, size_t count, size_t index, uintptr_t page_bytes);

#endif
