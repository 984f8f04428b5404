#include "proc.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int mount_privately(void) {
  int context = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
  if (context < 0)
    return -1;
  int mount = -1;
  if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
    mount = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
  close(context);
  return mount;
}

bool has_proc(void) {
  struct statfs file_system;
  return statfs("/proc", &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC;
}

ssize_t read_text(int directory, const char *path, char *text, size_t size) {
  int file = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (file >= 0)
    close(file);
  text[length < 0 ? 0 : length] = '\0';
  return length;
}

int open_proc(void) {
  struct statfs file_system;
  int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (proc >= 0 && fstatfs(proc, &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC)
    return proc;
  if (proc >= 0)
    close(proc);
  return mount_privately();
}
