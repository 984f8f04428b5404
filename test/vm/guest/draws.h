/* Where the drawer writes its draws, and the oracle reads them. */
#ifndef GUEST_DRAWS_H
#define GUEST_DRAWS_H

#include <stdint.h>

/* In the sandbox: memory, as everything in /dev/shm. */
#define DRAWS_FILE "/dev/shm/draws"
#define THREADS 8
/* Records that are kept of each thread. */
#define KEPT 131072

struct record {
  /* Of getrandom(2); of the vDSO's, 0 where there is none; of a generator that was seeded long ago. */
  uint64_t kernel, vdso, seeded;
  /* CLOCK_REALTIME, in nanoseconds. */
  uint64_t clock;
};

struct draws {
  /* Set by a reader who has seen enough: no more is drawn then. */
  volatile int halted;
  struct {
    /* Number of all records ever made. */
    volatile uint64_t made;
    struct record kept[KEPT];
  } threads[THREADS];
};

#endif
