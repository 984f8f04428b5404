#include "session.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"
#include "process_set.h"

/* Largest depth of nested cgroups to remove. A command can nest cgroups to any depth. */
#define NESTED_LIMIT 16

/*
 * Writes a text to a file of a cgroup. Failures are ignored: if the cgroup was already removed, its processes are found
 * as children of the launcher.
 */
static void write_at(int directory, const char *name, const char *text) {
  int file = openat(directory, name, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0)
    return;
  if (write(file, text, strlen(text)) < 0) {
  }
  close(file);
}

static DIR *open_directory(int directory, const char *name) {
  int file = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *entries = file < 0 ? NULL : fdopendir(file);
  if (entries == NULL && file >= 0)
    close(file);
  return entries;
}

/* Reads a file of a process in /proc. Returns false if the process does not exist. */
static bool read_of(DIR *proc, const char *process, const char *name, char *text, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "%.32s/%.16s", process, name);
  return read_text(dirfd(proc), path, text, size) > 0;
}

/*
 * Returns the parent's pid, or 0 if the process does not exist. Reads /proc/PID/stat from the last parenthesis on,
 * because the process name before it may contain spaces and parentheses (proc(5)).
 */
static pid_t parent_of(DIR *proc, const char *process) {
  char text[512];
  int parent = 0;
  const char *rest = read_of(proc, process, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
  return rest != NULL && sscanf(rest + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/*
 * Returns the path of a process's cgroup in the unified hierarchy, as a pointer into `text`; NULL if the path is
 * unknown.
 */
static char *cgroup_of(DIR *proc, const char *process, char *text, size_t size) {
  if (!read_of(proc, process, "cgroup", text, size))
    return NULL;
  char *line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
  if (line == NULL)
    return NULL;
  char *path = line + (*line == '\n') + strlen("0::");
  path[strcspn(path, "\n")] = '\0';
  return path;
}

static process_set descendants;

/*
 * Limit for the rounds of the search for descendants, because processes that fork in a loop could keep it running for
 * ever. A few rounds suffice, because parents are usually listed before their children.
 */
#define ROUNDS 4

static void find_descendants(DIR *proc) {
  bool found = true;
  for (int round = 0; found && round < ROUNDS; round++) {
    found = false;
    rewinddir(proc);
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
      pid_t process = atoi(entry->d_name);
      if (process <= 1 || process > HIGHEST_PID || is_in(descendants, process))
        continue;
      pid_t parent = parent_of(proc, entry->d_name);
      if (parent != getpid() && !is_in(descendants, parent))
        continue;
      put(descendants, process, true);
      found = true;
    }
  }
}

/*
 * Writes to `path` the relative path from the session's cgroup to the root of the hierarchy, such as "../../". The
 * session's cgroup is one level below the launcher's, so the path has one "../" more than the launcher's cgroup has
 * levels.
 */
static bool path_to_root(DIR *proc, char *path, size_t size) {
  char text[PATH_MAX + 256];
  const char *own = cgroup_of(proc, "self", text, sizeof text);
  size_t length = (size_t)snprintf(path, size, "../");
  for (; own != NULL && *own != '\0'; own++) {
    if (*own == '/' && own[1] != '\0' && length < size)
      length += (size_t)snprintf(path + length, size - length, "../");
  }
  return own != NULL && length < size;
}

/*
 * Thaws the cgroups of the launcher's descendants, including cgroups that the guest itself has frozen, because all
 * processes in them are about to be ended.
 */
static void thaw_descendants(int session, DIR *proc) {
  char root[PATH_MAX], text[PATH_MAX + 256], path[2 * PATH_MAX + 512];
  if (!path_to_root(proc, root, sizeof root))
    return;
  find_descendants(proc);
  rewinddir(proc);
  for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
    if (!is_in(descendants, atoi(entry->d_name)))
      continue;
    const char *cgroup = cgroup_of(proc, entry->d_name, text, sizeof text);
    if (cgroup == NULL)
      continue;
    snprintf(path, sizeof path, "%s%s/cgroup.freeze", root, cgroup + 1);
    write_at(session, path, "0");
  }
}

void thaw_session(int session) {
  if (session < 0)
    return;
  write_at(session, "cgroup.freeze", "0");
  int directory = open_proc();
  DIR *proc = directory < 0 ? NULL : fdopendir(directory);
  if (proc == NULL)
    return;
  thaw_descendants(session, proc);
  closedir(proc);
}

void kill_session(int session) {
  if (session >= 0)
    write_at(session, "cgroup.kill", "1");
}

static void remove_below(int directory, int depth) {
  DIR *entries = open_directory(directory, ".");
  if (entries == NULL)
    return;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
      continue;
    int below = depth < NESTED_LIMIT ? openat(dirfd(entries), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (below >= 0) {
      remove_below(below, depth + 1);
      close(below);
    }
    unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
  }
  closedir(entries);
}

/*
 * The launcher knows only the beginning of the cgroup's name, so it tries to remove every cgroup with this beginning.
 * This is harmless: the kernel refuses to remove a cgroup that is in use, and other such cgroups are leftovers.
 */
void remove_session(int session, pid_t agent) {
  char prefix[40];
  if (session < 0)
    return;
  remove_below(session, 0);
  snprintf(prefix, sizeof prefix, "svc-guest-%d-session", agent);
  DIR *entries = open_directory(session, "..");
  if (entries == NULL)
    return;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
      unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
  }
  closedir(entries);
}
