#include <string.h>
#include <sys/socket.h>

#include "values.h"

/*
 * sendDescriptor(socket, byte, fd): sends one byte over a unix socket, and with it a copy of a descriptor (unix(7),
 * SCM_RIGHTS), which the socket keeps even when this process ends.
 */
napi_value agent_send_descriptor(napi_env env, napi_callback_info info) {
  napi_value args[3];
  get_arguments(env, info, 3, args);
  char byte = (char)to_int(env, args[1]);
  int fd = to_int(env, args[2]);
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
  struct msghdr message = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return from_result(env, sendmsg(to_int(env, args[0]), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}
