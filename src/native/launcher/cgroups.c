#include "cgroups.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void kill_cgroup(int base, const char *name) {
  char path[NAME_MAX + sizeof "/cgroup.kill"];
  snprintf(path, sizeof path, "%s/cgroup.kill", name);
  int file = openat(base, path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return;
  /* Where this fails, the processes are found as children. */
  if (write(file, "1", 1) < 0) {
  }
  close(file);
}

static void remove_cgroup(int base, const char *name) {
  unlinkat(base, name, AT_REMOVEDIR);
}

static void for_each(int base, pid_t agent, void (*act)(int base, const char *name)) {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "svc-guest-%d-", agent);
  int folder = base < 0 ? -1 : openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = folder < 0 ? NULL : fdopendir(folder);
  if (entries == NULL)
    return;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
      act(base, entry->d_name);
  }
  closedir(entries);
}

void kill_cgroups(int base, pid_t agent) {
  for_each(base, agent, kill_cgroup);
}

void remove_cgroups(int base, pid_t agent) {
  for_each(base, agent, remove_cgroup);
}
