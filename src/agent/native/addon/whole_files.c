/*
 * Reads whole small files, all in one job. More jobs would wake more threads, and each thread that wakes after a
 * restore loads some ten pages of guest memory from the snapshot.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file_job.h"

/* Header of each file in the answer, followed by its bytes. */
struct state {
  int64_t error; /* errno, or 0; the other fields are valid only if it is 0 */
  int64_t dev, ino, size, mtime_ns, ctime_ns, mode, uid;
  int64_t changed; /* whether the file changed during the read, so that the bytes may be inconsistent */
  int64_t length;
};

static int64_t ns_of(struct timespec time) {
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static struct state state_of(int result, const struct stat *file) {
  if (result < 0) return (struct state){.error = errno};
  return (struct state){.dev = (int64_t)file->st_dev, .ino = (int64_t)file->st_ino, .size = file->st_size,
                        .mtime_ns = ns_of(file->st_mtim), .ctime_ns = ns_of(file->st_ctim), .mode = file->st_mode,
                        .uid = file->st_uid};
}

static struct state state_of_open(int fd) {
  struct stat file;
  return state_of(fstat(fd, &file), &file);
}

/*
 * Extends the answer and returns the address of the new part. The old buffer is overwritten, because it may contain
 * secrets.
 */
static char *extend_answer(struct argument *answer, size_t length) {
  char *bytes = malloc(answer->length + length);
  if (bytes == NULL) return NULL;
  if (answer->bytes != NULL) {
    memcpy(bytes, answer->bytes, answer->length);
    explicit_bzero(answer->bytes, answer->length);
    free(answer->bytes);
  }
  answer->bytes = bytes;
  answer->length += length;
  return bytes + answer->length - length;
}

/* Reads up to `length` bytes, fewer at EOF. Returns -1 and sets errno on failure. */
static ssize_t read_whole(int fd, char *bytes, size_t length) {
  size_t done = 0;
  while (done < length) {
    ssize_t count = read(fd, bytes + done, length - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += (size_t)count;
  }
  return (ssize_t)done;
}

static bool same_version(const struct state *one, const struct state *other) {
  return memcmp(&one->dev, &other->dev, offsetof(struct state, mode) - offsetof(struct state, dev)) == 0;
}

/* Opens with O_NONBLOCK, because otherwise opening a FIFO could block the thread. */
static int open_file(const char *path) {
  return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/*
 * Appends header and content of an open file. Returns -1 if there is no memory. The content is left out if the file is
 * not regular, is empty, or exceeds the limit.
 */
static int append_open(struct argument *answer, int fd, int64_t limit) {
  struct state state = state_of_open(fd);
  bool is_read = state.error == 0 && S_ISREG(state.mode) && state.size <= limit;
  size_t most = is_read ? (size_t)state.size : 0, before = answer->length;
  char *place = extend_answer(answer, sizeof state + most);
  if (place == NULL) return -1;
  ssize_t length = read_whole(fd, place + sizeof state, most);
  int read_error = errno;
  struct state after = state_of_open(fd);
  if (length < 0) state = (struct state){.error = read_error};
  else state.length = length;
  state.changed = is_read && !same_version(&state, &after);
  memcpy(place, &state, sizeof state);
  answer->length = before + sizeof state + (size_t)state.length;
  return 0;
}

static int append_state(struct argument *answer, struct state state) {
  char *place = extend_answer(answer, sizeof state);
  if (place == NULL) return -1;
  memcpy(place, &state, sizeof state);
  return 0;
}

/*
 * Reads the current content of a file. Cached pages may be older than the last restore, so the function drops them. It
 * then opens the file again, because only a read after a new open is certain to return current data.
 */
static int append_file(struct argument *answer, const char *path, int64_t limit) {
  int fd = open_file(path);
  if (fd >= 0) {
    agent_drop_file_cache(fd);
    close(fd);
    fd = open_file(path);
  }
  if (fd < 0) return append_state(answer, state_of(-1, NULL));
  int result = append_open(answer, fd, limit);
  /* The data is valid even if close fails, as it may on a network file system. */
  close(fd);
  return result;
}

int agent_read_files(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  answer->number = SECRET;
  const char *end = args[0].bytes + args[0].length;
  for (const char *path = args[0].bytes; path < end; path += strlen(path) + 1) {
    struct stat file;
    int result = args[1].number < 0 ? append_state(answer, state_of(stat(path, &file), &file))
                                    : append_file(answer, path, args[1].number);
    if (result < 0) return fail_with(ENOMEM);
  }
  return 0;
}
