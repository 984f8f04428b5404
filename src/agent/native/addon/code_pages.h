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
 * Returns the pages of the segment at `index` that are never written, as addresses of the file (p_vaddr). For a
 * read-only PT_LOAD segment, these are all pages that it does not share with a writable segment. For every other
 * segment, the range is empty.
 */
struct page_range code_pages(const ElfW(Phdr) *segments, size_t count, size_t index, uintptr_t page_bytes);

#endif
