#include "oom_score.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"

#define SCORE_FILE "/proc/self/oom_score_adj"
/*
 * A score of -1000 would exempt the process from the OOM killer. If memory is full and only exempt processes are left,
 * the kernel panics.
 */
#define PROTECTED_SCORE "-900"

int protect_from_oom_killer(void) {
  char text[16] = "";
  /*
   * Without procfs, the score stays as it is. Otherwise the agent's children would inherit the protected score, and the
   * agent could not restore their original score, because this requires a write to /proc/PID/oom_score_adj.
   */
  if (!has_proc())
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
