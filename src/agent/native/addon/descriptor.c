#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "values.h"

/* Duplicates a descriptor. The new number is above 2, the last standard stream. */
long agent_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

/* -EINVAL if the range is outside of the buffer. */
static napi_value transfer(napi_env env, napi_callback_info info, bool writes) {
  napi_value args[4];
  void *bytes = NULL;
  size_t total = 0;
  int64_t from = 0, length = 0;
  ssize_t count;
  get_arguments(env, info, 4, args);
  if (napi_get_buffer_info(env, args[1], &bytes, &total) != napi_ok) return from_int(env, -EINVAL);
  napi_get_value_int64(env, args[2], &from);
  napi_get_value_int64(env, args[3], &length);
  if (from < 0 || length < 0 || (uint64_t)from > total || (uint64_t)length > total - (uint64_t)from)
    return from_int(env, -EINVAL);
  int fd = to_int(env, args[0]);
  char *part = (char *)bytes + from;
  do
    count = writes ? write(fd, part, (size_t)length) : read(fd, part, (size_t)length);
  while (count < 0 && errno == EINTR);
  return from_result(env, count);
}

napi_value agent_read(napi_env env, napi_callback_info info) { return transfer(env, info, false); }

napi_value agent_write(napi_env env, napi_callback_info info) { return transfer(env, info, true); }

long agent_bytes_available(int fd) {
  int available = 0;
  return ioctl(fd, FIONREAD, &available) < 0 ? -1 : available;
}

long agent_widen_pipe(int fd, int size) { return fcntl(fd, F_SETPIPE_SZ, size); }

napi_value agent_hung_up(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  struct pollfd item = {.fd = to_int(env, fd), .events = POLLIN};
  return from_bool(env, poll(&item, 1, 0) > 0 && (item.revents & POLLHUP) != 0);
}

/* EWOULDBLOCK: the file is locked through another open file description. */
long agent_lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB); }

/* Uses SCM_RIGHTS (unix(7)). The receiver can read the message even after this process has ended. */
long agent_send_descriptor(int socket, int byte, int fd) {
  char sent = (char)byte;
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec bytes = {.iov_base = &sent, .iov_len = 1};
  struct msghdr message = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}
