#include "oom_score.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SCORE_FILE "/proc/self/oom_score_adj"
/* Not -1000: where memory is full and nobody else is left, the kernel would panic instead of ending this sandbox. */
#define PROTECTED_SCORE "-900"

int protect_from_oom_killer(void) {
  char text[16] = "";
  struct statfs file_system;
  /* Of the image: without it the agent could give its children no other score. In an ordinary folder there could be a
   * FIFO, or a disk that does not answer. */
  if (statfs("/proc", &file_system) < 0 || file_system.f_type != PROC_SUPER_MAGIC)
    return NO_OOM_SCORE;
  int file = open(SCORE_FILE, O_RDWR | O_CLOEXEC);
  if (file < 0)
    return NO_OOM_SCORE;
  bool is_read = read(file, text, sizeof text - 1) > 0;
  int before = atoi(text);
  bool is_changed = is_read && before > atoi(PROTECTED_SCORE) &&
                    pwrite(file, PROTECTED_SCORE, strlen(PROTECTED_SCORE), 0) == (ssize_t)strlen(PROTECTED_SCORE);
  close(file);
  return is_changed ? before : NO_OOM_SCORE;
}
