#include "read_ahead.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST "agent.pages"
/* Twice what the longest list takes. */
#define LIST_LIMIT_BYTES 32768
/* What the list counts in, whatever the kernel's own pages are. */
#define PAGE_BYTES 4096

static int open_in(int folder, const char *name) {
  return openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

/* The list as text; its length, or -1. */
static ssize_t read_list(int folder, char *list, size_t size) {
  int file = open_in(folder, LIST);
  if (file < 0)
    return -1;
  ssize_t length = read(file, list, size - 1);
  close(file);
  list[length < 0 ? 0 : length] = '\0';
  return length;
}

/* One line: runs of pages, each FIRST+COUNT. */
static void read_runs(int file, char *runs) {
  for (char *next = runs, *end; *next != '\0'; next = end) {
    unsigned long first = strtoul(next, &end, 10);
    if (end == next || *end != '+')
      return;
    unsigned long count = strtoul(end + 1, &end, 10);
    readahead(file, (off64_t)first * PAGE_BYTES, count * PAGE_BYTES);
  }
}

void read_ahead(const struct bundle *bundle) {
  static char list[LIST_LIMIT_BYTES];
  int folder = open(bundle->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), file = -1;
  if (folder < 0 || read_list(folder, list, sizeof list) < 0)
    list[0] = '\0';
  /* A line with a file's name is followed by lines with its runs. */
  for (char *rest = list, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (*line >= '0' && *line <= '9') {
      read_runs(file, line);
    } else if (*line != '\0') {
      close(file);
      file = open_in(folder, line);
    }
  }
  close(file);
  close(folder);
}
