#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "values.h"

/*
 * class BackgroundWriter(fd, capacityBytes): writes on a separate thread, because a write may block. Neither of the
 * alternatives works: O_NONBLOCK would affect other processes that share the open file, and after poll(2) another
 * process may fill the pipe before the write.
 */
enum { STACK_BYTES = 128 * 1024 };

struct record {
  struct record *next;
  size_t length;
  char bytes[];
};

struct background_writer {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* signalled when a record was queued, the last one was written, or `closing` was set */
  struct record *first, *last;
  size_t queued_bytes; /* total size of the queued records, including the one that is being written */
  size_t capacity_bytes;
  int fd;
  bool closing; /* whether the object was garbage-collected; the thread then writes the rest and frees everything */
};

/* One write(2) per record if possible: a pipe accepts up to PIPE_BUF bytes atomically. */
static void write_record(int fd, const struct record *record) {
  for (size_t done = 0; done < record->length;) {
    ssize_t count = write(fd, record->bytes + done, record->length - done);
    if (count > 0) {
      done += (size_t)count;
    } else if (count < 0 && errno == EAGAIN) {
      /* EAGAIN: another process, which shares the stream, has made it non-blocking. */
      struct pollfd item = {.fd = fd, .events = POLLOUT};
      poll(&item, 1, -1);
    } else if (count == 0 || errno != EINTR) {
      return; /* The stream has no reader, or is closed. */
    }
  }
}

static void *write_records(void *data) {
  struct background_writer *writer = data;
  pthread_mutex_lock(&writer->lock);
  for (;;) {
    while (writer->first == NULL && !writer->closing) pthread_cond_wait(&writer->changed, &writer->lock);
    struct record *record = writer->first;
    if (record == NULL) break;
    pthread_mutex_unlock(&writer->lock);
    write_record(writer->fd, record);
    pthread_mutex_lock(&writer->lock);
    writer->first = record->next;
    writer->queued_bytes -= record->length;
    free(record);
    if (writer->first == NULL) pthread_cond_broadcast(&writer->changed);
  }
  pthread_mutex_unlock(&writer->lock);
  pthread_cond_destroy(&writer->changed);
  pthread_mutex_destroy(&writer->lock);
  free(writer);
  return NULL;
}

static struct background_writer *new_writer(int fd, size_t capacity_bytes) {
  struct background_writer *writer = calloc(1, sizeof *writer);
  pthread_condattr_t attributes;
  if (writer == NULL) return NULL;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&writer->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&writer->lock, NULL);
  writer->fd = fd;
  writer->capacity_bytes = capacity_bytes;
  if (start_thread(write_records, writer, STACK_BYTES) == 0) return writer;
  free(writer);
  return NULL;
}

static void close_writer(napi_env env, void *data, void *hint) {
  struct background_writer *writer = data;
  (void)env;
  (void)hint;
  pthread_mutex_lock(&writer->lock);
  writer->closing = true;
  pthread_cond_broadcast(&writer->changed);
  pthread_mutex_unlock(&writer->lock);
}

static napi_value construct(napi_env env, napi_callback_info info) {
  napi_value args[2], self;
  size_t count = 2;
  napi_get_cb_info(env, info, &count, args, &self, NULL);
  struct background_writer *writer = new_writer(to_int(env, args[0]), (size_t)to_int(env, args[1]));
  if (writer == NULL) {
    napi_throw_error(env, "EAGAIN", "no thread can be started for writing");
    return NULL;
  }
  napi_wrap(env, self, writer, close_writer, NULL, NULL);
  return self;
}

/* Takes ownership of the record. Frees it and returns false if the queue lacks room. */
static bool enqueue(struct background_writer *writer, struct record *record) {
  pthread_mutex_lock(&writer->lock);
  bool fits = record->length <= writer->capacity_bytes - writer->queued_bytes;
  if (fits) {
    if (writer->first == NULL) writer->first = record;
    else writer->last->next = record;
    writer->last = record;
    writer->queued_bytes += record->length;
    pthread_cond_broadcast(&writer->changed);
  } else {
    free(record);
  }
  pthread_mutex_unlock(&writer->lock);
  return fits;
}

/* write(bytes): queues all bytes, or returns false if there is no room for all of them. */
static napi_value write_bytes(napi_env env, napi_callback_info info) {
  napi_value argument;
  void *bytes = NULL;
  size_t length = 0;
  struct background_writer *writer = get_object(env, info, 1, &argument);
  napi_get_buffer_info(env, argument, &bytes, &length);
  struct record *record = writer == NULL || bytes == NULL ? NULL : malloc(sizeof *record + length);
  if (record == NULL) return from_bool(env, false);
  record->next = NULL;
  record->length = length;
  memcpy(record->bytes, bytes, length);
  return from_bool(env, enqueue(writer, record));
}

/* drain(limitMs): blocks until everything is written (true) or the time is up (false). */
static napi_value drain(napi_env env, napi_callback_info info) {
  napi_value limit_ms;
  struct timespec until;
  struct background_writer *writer = get_object(env, info, 1, &limit_ms);
  if (writer == NULL) return from_bool(env, true);
  clock_gettime(CLOCK_MONOTONIC, &until);
  int32_t wait_ms = to_int(env, limit_ms);
  until.tv_nsec += wait_ms % 1000 * 1000000L;
  until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_mutex_lock(&writer->lock);
  while (writer->first != NULL && pthread_cond_timedwait(&writer->changed, &writer->lock, &until) == 0) continue;
  bool drained = writer->first == NULL;
  pthread_mutex_unlock(&writer->lock);
  return from_bool(env, drained);
}

napi_value agent_background_writer_class(napi_env env) {
  const napi_property_descriptor methods[] = {METHOD("write", write_bytes), METHOD("drain", drain)};
  return define_class(env, "BackgroundWriter", construct, 2, methods);
}
