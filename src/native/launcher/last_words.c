#include "last_words.h"

#include <string.h>
#include <sys/socket.h>

/* The descriptor that came with a message, or -1. */
static int descriptor_of(struct msghdr *message) {
  int descriptor = -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(message);
  if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

struct last_words read_last_words(int channel) {
  struct last_words words = {.farewell = false, .cgroups = -1};
  for (;;) {
    char byte;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
      return words;
    int descriptor = descriptor_of(&message);
    if (descriptor >= 0)
      words.cgroups = descriptor;
    else
      words.farewell = true;
  }
}
