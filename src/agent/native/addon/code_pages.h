/* Which memory of a program or library can be given back to the kernel. The build also compiles this rule alone. */
#ifndef AGENT_CODE_PAGES_H
#define AGENT_CODE_PAGES_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* From `start` up to `end`; empty if both are the same. */
struct page_range {
  uintptr_t start;
  uintptr_t end;
};

/*
 * The pages of an object's segment that nothing ever writes to, as addresses in its file (p_vaddr). They are those of a
 * loaded, read-only segment, without any page that a writable one touches.
 */
struct page_range code_pages(const ElfW(Phdr) *segments, size_t count, size_t index, uintptr_t page_bytes);

#endif
