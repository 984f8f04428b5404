#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "spawn.h"
#include "values.h"

/* O_CLOEXEC must be set by the open itself, because another thread may be starting a child. */
static int open_master(void) {
  int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  /* A root file system without the link /dev/ptmx may still have the device in its devpts mount. */
  return fd >= 0 ? fd : open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
}

/*
 * First tries TIOCGPTPEER (Linux 4.13). It needs no path, so it works even if the mount at /dev/pts is not the one to
 * which the master belongs.
 */
static int open_slave(int master) {
  int unlock = 0;
  unsigned int number = 0;
  char path[32];
  if (ioctl(master, TIOCSPTLCK, &unlock) < 0) return -1;
  int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) return fd;
  if (ioctl(master, TIOCGPTN, &number) < 0) return -1;
  snprintf(path, sizeof path, "/dev/pts/%u", number);
  return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int set_size(int fd, int cols, int rows) {
  struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
  return ioctl(fd, TIOCSWINSZ, &size);
}

int open_terminal(int cols, int rows, int ends[2]) {
  int master = open_master();
  if (master < 0) return -1;
  int slave = open_slave(master);
  if (slave < 0 || set_size(master, cols, rows) < 0) {
    close_keep_errno(slave);
    close_keep_errno(master);
    return -1;
  }
  ends[0] = master;
  ends[1] = slave;
  return 0;
}

void set_utf8_input(int slave) {
  struct termios settings;
  if (tcgetattr(slave, &settings) < 0) return;
  settings.c_iflag |= IUTF8;
  tcsetattr(slave, TCSANOW, &settings);
}

napi_value agent_open_terminal(napi_env env, napi_callback_info info) {
  napi_value args[2], pair = NULL;
  int ends[2];
  get_arguments(env, info, 2, args);
  if (open_terminal(to_int(env, args[0]), to_int(env, args[1]), ends) < 0) return from_int(env, -errno);
  napi_create_array_with_length(env, 2, &pair);
  for (uint32_t i = 0; i < 2; i++) napi_set_element(env, pair, i, from_int(env, ends[i]));
  return pair;
}

/* The kernel sends SIGWINCH to the foreground process group. */
long agent_resize_terminal(int fd, int cols, int rows) { return set_size(fd, cols, rows); }

/*
 * Signals the foreground process group of a terminal. With TIOCSIG the kernel itself finds the group
 * (drivers/tty/pty.c), so no process group id can be stale.
 */
long agent_signal_foreground(int fd, int signal) { return ioctl(fd, TIOCSIG, signal); }

/* Fails with ENODATA if the terminal has no end-of-file character: in raw mode, or if the character is disabled. */
long agent_terminal_eof_byte(int fd) {
  struct termios settings;
  if (tcgetattr(fd, &settings) < 0) return -1;
  cc_t eof = settings.c_cc[VEOF];
  return (settings.c_lflag & ICANON) && eof != _POSIX_VDISABLE ? eof : fail_with(ENODATA);
}
