#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "values.h"

/* duplicate(fd): another descriptor, above the standard ones, of the same file description. */
napi_value agent_duplicate(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  return from_result(env, fcntl(to_int(env, fd), F_DUPFD_CLOEXEC, 3));
}

/* Start of the part of a Uint8Array that offset and length name; NULL where they lie outside of it. */
static char *part_of(napi_env env, const napi_value *args, size_t *length) {
  void *bytes = NULL;
  size_t total = 0;
  if (napi_get_buffer_info(env, args[0], &bytes, &total) != napi_ok) return NULL;
  int64_t from = 0, wanted = 0;
  napi_get_value_int64(env, args[1], &from);
  napi_get_value_int64(env, args[2], &wanted);
  if (from < 0 || wanted < 0 || (uint64_t)from > total || (uint64_t)wanted > total - (uint64_t)from) return NULL;
  *length = (size_t)wanted;
  return (char *)bytes + from;
}

/* read(fd, bytes, offset, length): bytes read; 0 at the end of the stream. */
napi_value agent_read(napi_env env, napi_callback_info info) {
  napi_value args[4];
  size_t length;
  ssize_t count;
  get_arguments(env, info, 4, args);
  char *bytes = part_of(env, args + 1, &length);
  if (bytes == NULL) return from_int(env, -EINVAL);
  int fd = to_int(env, args[0]);
  do
    count = read(fd, bytes, length);
  while (count < 0 && errno == EINTR);
  return from_result(env, count);
}

/*
 * readCached(fd, bytes, position): reads only what the page cache holds, which may be less than asked for. 0 at the end
 * of the file; -EAGAIN where nothing is cached; -EOPNOTSUPP where the file system cannot tell. A negative position means
 * the descriptor's own.
 */
napi_value agent_read_cached(napi_env env, napi_callback_info info) {
  napi_value args[3];
  struct iovec part = {0};
  int64_t position = -1;
  ssize_t count;
  get_arguments(env, info, 3, args);
  if (napi_get_buffer_info(env, args[1], &part.iov_base, &part.iov_len) != napi_ok) return from_int(env, -EINVAL);
  napi_get_value_int64(env, args[2], &position);
  int fd = to_int(env, args[0]);
  do
    count = preadv2(fd, &part, 1, position < 0 ? -1 : position, RWF_NOWAIT);
  while (count < 0 && errno == EINTR);
  return from_result(env, count);
}

/* write(fd, bytes, offset, length): bytes written. */
napi_value agent_write(napi_env env, napi_callback_info info) {
  napi_value args[4];
  size_t length;
  ssize_t count;
  get_arguments(env, info, 4, args);
  char *bytes = part_of(env, args + 1, &length);
  if (bytes == NULL) return from_int(env, -EINVAL);
  int fd = to_int(env, args[0]);
  do
    count = write(fd, bytes, length);
  while (count < 0 && errno == EINTR);
  return from_result(env, count);
}

/* bytesAvailable(fd): bytes that can be read from a pipe or terminal now. */
napi_value agent_bytes_available(napi_env env, napi_callback_info info) {
  napi_value fd;
  int available = 0;
  get_arguments(env, info, 1, &fd);
  int result = ioctl(to_int(env, fd), FIONREAD, &available);
  return from_result(env, result < 0 ? result : available);
}

/* hungUp(fd): true when nobody holds the pipe's writing end any more. It may still hold bytes. */
napi_value agent_hung_up(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  struct pollfd item = {.fd = to_int(env, fd), .events = POLLIN};
  return from_bool(env, poll(&item, 1, 0) > 0 && (item.revents & POLLHUP) != 0);
}
