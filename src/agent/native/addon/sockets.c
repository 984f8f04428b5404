/* Connections to listeners in the guest: ports of the loopback interface, and unix sockets. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "file_job.h"

/*
 * Size of the receive buffer: the largest size that every kernel permits by default. With the kernel's automatic
 * sizing, the buffer grew to 6 MiB, and reading from a port took 15 % more CPU time (appendix-attempts.md, Tunnels).
 */
#define UNREAD_BYTES (208 * 1024)

/*
 * Does not block: the socket becomes writable when it is connected or has failed. Sets TCP_NODELAY, so that the bytes
 * of a tunnel are sent immediately.
 */
long agent_connect_port(int family, int port) {
  bool is_v6 = family == 6;
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4.sin_port = v6.sin6_port = htons((uint16_t)port);
  int on = 1, unread = UNREAD_BYTES;
  int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &unread, sizeof unread);
  int result = is_v6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4);
  if (result == 0 || errno == EINPROGRESS) return fd;
  close_keep_errno(fd);
  return -1;
}

/* EAGAIN: the listener's backlog is full. */
int agent_connect_path(struct argument *args) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = args[0].bytes;
  if (strlen(path) >= sizeof address.sun_path) return fail_with(ENAMETOOLONG);
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  close_keep_errno(fd);
  return -1;
}

/*
 * Whether the socket has connected to itself, which counts as refused. This can happen if no process listens on the
 * port and the kernel chooses that port as the socket's own (RFC 9293, 3.5).
 */
static bool is_own_peer(int fd) {
  struct sockaddr_storage own, peer;
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  memset(&own, 0, sizeof own);
  memset(&peer, 0, sizeof peer);
  if (getsockname(fd, (struct sockaddr *)&own, &own_size) < 0) return false;
  if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) < 0) return false;
  return own_size == peer_size && memcmp(&own, &peer, own_size) == 0;
}

long agent_connected(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) return -1;
  if (error == 0 && is_own_peer(fd)) error = ECONNREFUSED;
  return error == 0 ? 0 : fail_with(error);
}

long agent_peer_process(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ? -1 : peer.pid;
}

long agent_unacknowledged_ms(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  memset(&info, 0, sizeof info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0) return -1;
  bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0 || info.tcpi_notsent_bytes > 0;
  /*
   * While the peer's window is closed, the kernel sends probes. One unanswered probe is normal, because the answer may
   * still be on its way. So the peer's silence counts only from the second unanswered probe on.
   */
  bool should_answer = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
  if (!waits) return 0;
  return should_answer && info.tcpi_last_ack_recv > 0 ? (long)info.tcpi_last_ack_recv : 1;
}

long agent_end_writing(int fd) { return shutdown(fd, SHUT_WR); }

long agent_reset_at_close(int fd) {
  struct linger none = {.l_onoff = 1, .l_linger = 0};
  return setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}
