#include "descriptors.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "failure.h"

/* Anything may lie at that path in an image; opening it could hang. */
static int open_null_device(void) {
  struct stat found;
  if (stat("/dev/null", &found) < 0 || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(1, 3))
    return -1;
  return open("/dev/null", O_RDWR | O_NOCTTY);
}

/* A stream at its end: /dev/null, or in an image without it a socket whose peer is closed. */
static int open_ended_stream(void) {
  int device = open_null_device();
  if (device >= 0)
    return device;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
    fail("cannot replace a closed standard stream");
  close(pair[1]);
  return pair[0];
}

/* Node aborts when a standard stream is closed and there is no /dev/null, as in an empty image. The lowest free
 * descriptor is taken, so 0 to 2 end up open. */
void ensure_standard_streams(void) {
  for (int stream = 0; stream <= 2; stream++) {
    if (fcntl(stream, F_GETFD) < 0 && open_ended_stream() != stream)
      fail_because("cannot replace a closed standard stream", "unexpected descriptor");
  }
}

/* Kernels before 5.9 lack close_range(2); the agent's own spawn keeps descriptors from its children there. */
void close_inherited_descriptors(void) {
  syscall(SYS_close_range, 3U, ~0U, 0U);
}
