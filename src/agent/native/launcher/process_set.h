#ifndef LAUNCHER_PROCESS_SET_H
#define LAUNCHER_PROCESS_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* PID_MAX_LIMIT of the kernel. */
#define HIGHEST_PID 4194304

/* A bit set of process ids. */
typedef uint8_t process_set[HIGHEST_PID / 8 + 1];

static inline bool is_in(const process_set set, pid_t process) {
  return process >= 0 && process <= HIGHEST_PID && (set[process / 8] & 1U << process % 8) != 0;
}

static inline void put(process_set set, pid_t process, bool is_member) {
  if (process < 0 || process > HIGHEST_PID) return;
  uint8_t bit = (uint8_t)(1U << process % 8);
  set[process / 8] = (uint8_t)(is_member ? set[process / 8] | bit : set[process / 8] & ~bit);
}

#endif
