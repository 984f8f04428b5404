/* Ends the process when a file that its start needs does not come: the reading thread hangs in its file system. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "values.h"

#define STACK_BYTES (64 * 1024)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The limit of the file that is read now. */
static struct {
  /* Written when the limit is over; empty: nothing is read. */
  char message[512];
  size_t message_bytes;
  struct timespec until;
  int exit_status;
} reading;
static pthread_cond_t over;
static bool is_watched;

static bool is_late(const struct timespec *now) {
  const struct timespec *until = &reading.until;
  return now->tv_sec > until->tv_sec || (now->tv_sec == until->tv_sec && now->tv_nsec >= until->tv_nsec);
}

static void *watch(void *unused) {
  pthread_mutex_lock(&lock);
  while (reading.message_bytes > 0) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (is_late(&now)) {
      /* A full pipe would take no line, and hold up the exit: one with room takes as much as PIPE_BUF at once. */
      struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
      ssize_t written = poll(&output, 1, 0) > 0 ? write(STDERR_FILENO, reading.message, reading.message_bytes) : 0;
      (void)written;
      _exit(reading.exit_status);
    }
    pthread_cond_timedwait(&over, &lock, &reading.until);
  }
  is_watched = false;
  pthread_mutex_unlock(&lock);
  return unused;
}

static int start_watch(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&over, &attributes);
  pthread_condattr_destroy(&attributes);
  return start_thread(watch, NULL, STACK_BYTES);
}

/* The same thread watches one file after the other; where it cannot be started, nothing is bounded. */
napi_value agent_limit_reading(napi_env env, napi_callback_info info) {
  napi_value args[3];
  void *message = NULL;
  size_t bytes = 0;
  get_arguments(env, info, 3, args);
  napi_get_buffer_info(env, args[0], &message, &bytes);
  int limit_ms = to_int(env, args[1]);
  int error = 0;
  pthread_mutex_lock(&lock);
  reading.message_bytes = bytes < sizeof reading.message ? bytes : sizeof reading.message;
  if (bytes > 0) memcpy(reading.message, message, reading.message_bytes);
  reading.exit_status = to_int(env, args[2]);
  clock_gettime(CLOCK_MONOTONIC, &reading.until);
  reading.until.tv_sec += limit_ms / 1000;
  if (bytes > 0 && !is_watched) {
    error = start_watch();
    is_watched = error == 0;
  } else if (is_watched) {
    pthread_cond_signal(&over);
  }
  pthread_mutex_unlock(&lock);
  return from_int(env, -error);
}
