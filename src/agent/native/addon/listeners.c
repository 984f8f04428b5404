/* Listening sockets that are needed before Node's own code is loaded, or that Node does not support. */
#include <netinet/in.h>
#include <sys/socket.h>

/* This header uses types of sys/socket.h, which must be included first. */
#include <linux/vm_sockets.h>

#include "values.h"

/* The same backlog as Node's default for a server. */
enum { BACKLOG = 511 };

static int stream_socket(int family) { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

static int listen_at(int fd, const struct sockaddr *address, socklen_t size) {
  if (bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0) return fd;
  close_keep_errno(fd);
  return -1;
}

static int listen_v6(int port) {
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
  int on = 1, off = 0, fd = stream_socket(AF_INET6);
  if (fd < 0) return -1;
  address.sin6_port = htons((uint16_t)port);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return listen_at(fd, (struct sockaddr *)&address, sizeof address);
}

static int listen_v4(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  int on = 1, fd = stream_socket(AF_INET);
  if (fd < 0) return -1;
  address.sin_port = htons((uint16_t)port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return listen_at(fd, (struct sockaddr *)&address, sizeof address);
}

/* Listens on IPv6 and IPv4, or only on IPv4 if the guest has no IPv6. */
long agent_listen_port(int port) {
  int fd = listen_v6(port);
  return fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL) ? listen_v4(port) : fd;
}

/* Listens on any CID (VMADDR_CID_ANY), because a clone of a snapshot may have another CID. */
long agent_listen_vsock(int port) {
  struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = (unsigned int)port};
  int fd = stream_socket(AF_VSOCK);
  return fd < 0 ? -1 : listen_at(fd, (struct sockaddr *)&address, sizeof address);
}

/* vsockPeer(fd): returns the peer's CID and port. */
napi_value agent_vsock_peer(napi_env env, napi_callback_info info) {
  napi_value socket, values = NULL;
  struct sockaddr_vm peer = {0};
  socklen_t size = sizeof peer;
  get_arguments(env, info, 1, &socket);
  if (getpeername(to_int(env, socket), (struct sockaddr *)&peer, &size) < 0) return from_int(env, -errno);
  napi_create_array_with_length(env, 2, &values);
  napi_set_element(env, values, 0, from_int(env, peer.svm_cid));
  napi_set_element(env, values, 1, from_int(env, peer.svm_port));
  return values;
}
