/* Where each hardship counts its rounds (test/vm/guest/hardship.c); the oracle reads them. */
#ifndef GUEST_BEATS_H
#define GUEST_BEATS_H

#include <stdint.h>

/* In the sandbox: memory, as everything in /dev/shm. */
#define BEATS_FILE "/dev/shm/beats"
#define BEATS 16
#define BEAT_NAME_BYTES 32

struct beats {
  struct {
    char name[BEAT_NAME_BYTES];
    volatile uint64_t rounds;
  } of[BEATS];
};

#endif
