#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "values.h"

/*
 * Mounts the cgroup file system without attaching it to the directory tree, so that only the holder of the returned
 * descriptor can access it. Closing the descriptor unmounts it. Requires CAP_SYS_ADMIN and Linux 5.2.
 */
long agent_mount_cgroups(void) {
  int context = (int)syscall(SYS_fsopen, "cgroup2", FSOPEN_CLOEXEC);
  if (context < 0) return -1;
  long mount = syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
  if (mount == 0)
    mount = syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  close_keep_errno(context);
  return mount;
}

/*
 * Gets an open directory, a name in the directory, and flags from JavaScript, and passes them to the function `call`.
 */
static napi_value call_at(napi_env env, napi_callback_info info,
                          int (*call)(int directory, const char *name, int flags)) {
  napi_value args[3];
  char name[PATH_MAX];
  get_arguments(env, info, 3, args);
  return from_result(env, to_path(env, args[1], name) ? call(to_int(env, args[0]), name, to_int(env, args[2])) : -1);
}

static int open_at(int directory, const char *name, int flags) { return openat(directory, name, flags | O_CLOEXEC); }

static int make_directory(int directory, const char *name, int unused) {
  (void)unused;
  return mkdirat(directory, name, 0755);
}

/* EBUSY: the directory is a cgroup with living processes. */
static int remove_directory(int directory, const char *name, int unused) {
  (void)unused;
  return unlinkat(directory, name, AT_REMOVEDIR);
}

napi_value agent_open_at(napi_env env, napi_callback_info info) { return call_at(env, info, open_at); }

napi_value agent_make_directory_at(napi_env env, napi_callback_info info) { return call_at(env, info, make_directory); }

napi_value agent_remove_directory_at(napi_env env, napi_callback_info info) {
  return call_at(env, info, remove_directory);
}

static bool is_directory_below(const struct dirent *entry) {
  if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) return false;
  return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Reopens the directory, because a duplicate (dup(2)) would share the read position with `directory`. */
napi_value agent_directories_in(napi_env env, napi_callback_info info) {
  napi_value directory, names = NULL, name;
  get_arguments(env, info, 1, &directory);
  int fd = openat(to_int(env, directory), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = fd < 0 ? NULL : fdopendir(fd);
  if (entries == NULL) {
    close_keep_errno(fd);
    return from_int(env, -errno);
  }
  napi_create_array(env, &names);
  uint32_t count = 0;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (!is_directory_below(entry)) continue;
    napi_create_string_utf8(env, entry->d_name, NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, names, count++, name);
  }
  closedir(entries);
  return names;
}
