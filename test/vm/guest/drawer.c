/*
 * A workload that draws without pause, in eight threads: random numbers of the kernel, of its vDSO and of a generator
 * of its own, and the time. It numbers them in memory (draws.h), where they can be read later with their times. Each
 * thread has a low priority, so that the agent gets its turn on one processor.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "draws.h"
#include "vdso.h"

static struct draws *draws;

/* xorshift64*: any generator inside of the process will do. */
static uint64_t next_seeded(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(0x2545F4914F6CDD1D);
}

static void *draw_for_ever(void *argument) {
  int thread = (int)(intptr_t)argument;
  struct vdso vdso = open_vdso();
  uint64_t seed = UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(thread + 1);
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
  while (!draws->halted) {
    struct record made = {0};
    struct timespec now;
    syscall(SYS_getrandom, &made.kernel, sizeof made.kernel, 0);
    if (vdso.draw)
      vdso.draw(&made.vdso, sizeof made.vdso, 0, vdso.state, vdso.state_bytes);
    made.seeded = next_seeded(&seed);
    clock_gettime(CLOCK_REALTIME, &now);
    made.clock = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    uint64_t number = draws->threads[thread].made;
    draws->threads[thread].kept[number % KEPT] = made;
    __atomic_store_n(&draws->threads[thread].made, number + 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

int main(void) {
  int file = open(DRAWS_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ftruncate(file, sizeof *draws)) {
    perror(DRAWS_FILE);
    return 1;
  }
  draws = mmap(NULL, sizeof *draws, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (draws == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, draw_for_ever, (void *)(intptr_t)i)) {
      fputs("pthread_create failed\n", stderr);
      return 1;
    }
  }
  for (;;)
    pause();
}
