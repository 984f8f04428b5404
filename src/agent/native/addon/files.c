/*
 * Operations on entries of open directories. They take the directory's descriptor, because a path could be replaced
 * between two calls. They run on libuv threads, because a file system may hang.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "file_job.h"

bool is_dots(const char *name) {
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int64_t now_ms(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int agent_target_of(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  answer->bytes = malloc(PATH_MAX);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
  int length = (int)readlinkat(args[0].number, "", answer->bytes, PATH_MAX);
  if (length >= 0) answer->length = (size_t)length;
  return length;
}

/* Node's fs.stat is not used, because it converts seconds to a double, which rounds values beyond 2^53. */
int agent_times_of(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  struct stat seen;
  if (fstatat(args[0].number, args[1].bytes, &seen, args[2].number) < 0) return -1;
  int64_t times[] = {seen.st_mtim.tv_sec, seen.st_mtim.tv_nsec, seen.st_atim.tv_sec,
                     seen.st_atim.tv_nsec, seen.st_ctim.tv_sec, seen.st_ctim.tv_nsec};
  answer->bytes = malloc(sizeof times);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
  memcpy(answer->bytes, times, sizeof times);
  answer->length = sizeof times;
  return 0;
}

int agent_open_in(struct argument *args) {
  int directory = args[0].number, flags = args[2].number, mode = args[3].number, resolve = args[4].number;
  if (resolve == 0) return openat(directory, args[1].bytes, flags | O_CLOEXEC, mode);
  return open_resolved(directory, args[1].bytes, flags, mode, resolve);
}

int link_descriptor(int fd, int directory, const char *name) {
  int result = linkat(fd, "", directory, name, AT_EMPTY_PATH);
  /* ENOENT may also mean that linking by descriptor requires a privilege (open(2), O_TMPFILE). */
  if (result < 0 && errno == ENOENT)
    result = linkat(AT_FDCWD, descriptor_path(fd).text, directory, name, AT_SYMLINK_FOLLOW);
  return result;
}

/*
 * If the name is taken, linkat(2) fails. The file is then linked to the temporary name, and renameat(2) replaces the
 * old file with this link. Both calls are in one job, so that they follow each other quickly: if the agent is killed
 * between them, the temporary name remains.
 */
int place_in(int fd, int directory, const char *name, const char *temporary) {
  int result = link_descriptor(fd, directory, name);
  if (result == 0 || errno != EEXIST || temporary[0] == '\0') return result;
  if (link_descriptor(fd, directory, temporary) < 0) return -1;
  result = renameat(directory, temporary, directory, name);
  int error = errno;
  /* rename(2) does nothing if both names are links to the same file, so the temporary name must be removed. */
  unlinkat(directory, temporary, 0);
  return result < 0 ? fail_with(error) : 0;
}

int move_in(int directory, const char *from, int target, const char *to, bool exclusive) {
  if (!exclusive) return renameat(directory, from, target, to);
  int result = (int)syscall(SYS_renameat2, directory, from, target, to, RENAME_NOREPLACE);
  if (result == 0 || (errno != EINVAL && errno != ENOSYS)) return result;
  /*
   * If the file system does not support RENAME_NOREPLACE, links the new name and unlinks the old one. If unlinking
   * fails, removes the new name.
   */
  if (linkat(directory, from, target, to, 0) < 0) return -1;
  if (unlinkat(directory, from, 0) == 0) return 0;
  int error = errno;
  unlinkat(target, to, 0);
  return fail_with(error);
}

int agent_move_in(struct argument *args) {
  return move_in(args[0].number, args[1].bytes, args[2].number, args[3].bytes, args[4].number != 0);
}

int agent_remove_in(struct argument *args) {
  return unlinkat(args[0].number, args[1].bytes, args[2].number ? AT_REMOVEDIR : 0);
}
