#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "values.h"

/* System calls by number: the C library of Debian 11 has no wrappers for them. */
static int new_mount(const char *type) {
  int context = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
  if (context < 0) return -1;
  int mount = -1;
  if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
    mount = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                         MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  int error = errno;
  close(context);
  errno = error;
  return mount;
}

/*
 * mountCgroups(): a descriptor of the root of a cgroup2 file system that no path leads to, so that only its holder sees
 * it. Closing it unmounts. Needs CAP_SYS_ADMIN and Linux 5.2.
 */
napi_value agent_mount_cgroups(napi_env env, napi_callback_info info) {
  (void)info;
  return from_result(env, new_mount("cgroup2"));
}

enum { NAME_BYTES = 4096 };

struct place {
  int folder;
  char name[NAME_BYTES];
};

static struct place place_of(napi_env env, napi_value *args) {
  struct place place = {.folder = to_int(env, args[0])};
  napi_get_value_string_utf8(env, args[1], place.name, sizeof place.name, NULL);
  return place;
}

/* openAt(folder, name, flags): openat(2), with O_CLOEXEC. */
napi_value agent_open_at(napi_env env, napi_callback_info info) {
  napi_value args[3];
  get_arguments(env, info, 3, args);
  struct place place = place_of(env, args);
  return from_result(env, openat(place.folder, place.name, to_int(env, args[2]) | O_CLOEXEC));
}

/* makeFolderAt(folder, name): mkdirat(2). */
napi_value agent_make_folder_at(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  struct place place = place_of(env, args);
  return from_result(env, mkdirat(place.folder, place.name, 0755));
}

/* removeFolderAt(folder, name): unlinkat(2) of a folder. A cgroup with living processes is busy. */
napi_value agent_remove_folder_at(napi_env env, napi_callback_info info) {
  napi_value args[2];
  get_arguments(env, info, 2, args);
  struct place place = place_of(env, args);
  return from_result(env, unlinkat(place.folder, place.name, AT_REMOVEDIR));
}

/*
 * namesIn(folder): entries of an open folder, or a negated errno. Reopens it: duplicates would share one read position.
 */
napi_value agent_names_in(napi_env env, napi_callback_info info) {
  napi_value folder, names = NULL, name;
  get_arguments(env, info, 1, &folder);
  int fd = openat(to_int(env, folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = fd < 0 ? NULL : fdopendir(fd);
  if (entries == NULL) {
    int error = errno;
    if (fd >= 0) close(fd);
    return from_int(env, -error);
  }
  napi_create_array(env, &names);
  uint32_t count = 0;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    napi_create_string_utf8(env, entry->d_name, NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, names, count++, name);
  }
  closedir(entries);
  return names;
}

/* lock(fd): flock(2), exclusively and without waiting: -EWOULDBLOCK while another open file of it holds the lock. */
napi_value agent_lock(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  return from_result(env, flock(to_int(env, fd), LOCK_EX | LOCK_NB));
}
