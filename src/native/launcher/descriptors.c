#include "descriptors.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"

/* Node aborts when a standard stream is closed and there is no /dev/null, as in an empty image: a socket whose other
 * end is closed serves without any file. The lowest free descriptors are taken, so 0 to 2 end up open. */
void ensure_standard_streams(void) {
  for (int stream = 0; stream <= 2; stream++) {
    if (fcntl(stream, F_GETFD) >= 0)
      continue;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
      fail("cannot replace a closed standard stream");
    if (pair[0] != stream || close(pair[1]) < 0)
      fail_because("cannot replace a closed standard stream", "unexpected descriptor");
  }
}

/* Kernels before 5.9 lack close_range(2); the agent's own spawn keeps descriptors from its children there. */
void close_inherited_descriptors(void) {
  syscall(SYS_close_range, 3U, ~0U, 0U);
}
