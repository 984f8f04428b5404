/*
 * The agent's rule of what it gives back (code_pages.c), for the files that are shipped: code-pages FILE PAGE_BYTES...
 * prints a line "PAGE_BYTES START END" for each range of pages. Files of any 64-bit machine have the same headers.
 */
#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/agent/native/addon/code_pages.h"

enum { MOST_SEGMENTS = 64 };

int main(int argc, char **argv) {
  Elf64_Ehdr header;
  Elf64_Phdr segments[MOST_SEGMENTS];
  FILE *file = argc < 3 ? NULL : fopen(argv[1], "rb");
  if (file == NULL) return 1;
  bool is_read = fread(&header, sizeof header, 1, file) == 1 && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                 header.e_phentsize == sizeof *segments && header.e_phnum <= MOST_SEGMENTS &&
                 fseek(file, (long)header.e_phoff, SEEK_SET) == 0 &&
                 fread(segments, sizeof *segments, header.e_phnum, file) == header.e_phnum;
  fclose(file);
  if (!is_read) {
    fprintf(stderr, "%s: no ELF file of 64 bits with at most %d segments\n", argv[1], MOST_SEGMENTS);
    return 1;
  }
  for (int i = 2; i < argc; i++) {
    for (size_t index = 0; index < header.e_phnum; index++) {
      struct page_range pages = code_pages(segments, header.e_phnum, index, strtoul(argv[i], NULL, 10));
      if (pages.start != pages.end) printf("%s %#lx %#lx\n", argv[i], pages.start, pages.end);
    }
  }
  return 0;
}
