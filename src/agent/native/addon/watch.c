/*
 * Watches directories with inotify(7), which takes only paths. A path could be swapped before the call, and /proc may
 * be missing. So a thread with its own working directory enters each directory by descriptor (fchdir(2)) and watches
 * ".".
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "file_job.h"

/*
 * RAW_BYTES: size of the buffer for getdents64(2).
 * BATCH_MS: time after which a call ends.
 * LISTED: if a directory has more files than this, the others are not listed, and only their existence is reported.
 */
enum { RAW_BYTES = 16 * 1024, BATCH_MS = 200, LISTED = 4096 };

/* Header of each directory in the answer, followed by the names. ../../files/calls/watch.ts parses it. */
struct packed_watch {
  int32_t result; /* the watch, or a negated errno */
  uint32_t names_bytes;
};

struct watching {
  struct argument *args;
  bool has_own_directory;
  int result;
};

long agent_open_inotify(void) { return inotify_init1(IN_NONBLOCK | IN_CLOEXEC); }

long agent_unwatch(int inotify, int watch) { return inotify_rm_watch(inotify, watch); }

/*
 * Adds a watch for an open directory. Normally, the thread enters the directory and watches ".". If the thread has no
 * working directory of its own, for example because a seccomp filter forbids unshare(2), the directory's path in /proc
 * is used instead.
 */
static int watch_open(const struct watching *watching, int fd) {
  const struct argument *args = watching->args;
  if (watching->has_own_directory) {
    if (fchdir(fd) < 0) return -1;
    return inotify_add_watch(args[1].number, ".", (uint32_t)args[3].number);
  }
  int watch = inotify_add_watch(args[1].number, descriptor_path(fd).text, (uint32_t)args[3].number);
  return watch < 0 && errno == ENOENT ? fail_with(ENOSYS) : watch;
}

static bool is_directory(int directory, const struct kernel_entry *entry) {
  struct stat seen;
  if (entry->type != DT_UNKNOWN) return entry->type == DT_DIR;
  return fstatat(directory, entry->name, &seen, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 && S_ISDIR(seen.st_mode);
}

static int list(int fd, bool all, struct argument *answer, size_t *room) {
  _Alignas(struct kernel_entry) char raw[RAW_BYTES];
  int files = 0;
  for (;;) {
    long count = syscall(SYS_getdents64, fd, raw, sizeof raw);
    if (count <= 0) return (int)count;
    for (long at = 0; at < count;) {
      const struct kernel_entry *entry = (const struct kernel_entry *)(const void *)(raw + at);
      at += entry->record_bytes;
      if (is_dots(entry->name)) continue;
      char mark = is_directory(fd, entry) ? '/' : '-';
      if (mark == '-' && (!all || files++ > LISTED)) continue;
      if (mark == '-' && files > LISTED) mark = '+';
      if (!append(answer, room, &mark, 1) || !append(answer, room, entry->name, strlen(entry->name) + 1))
        return fail_with(ENOMEM);
    }
  }
}

/* Adds the watch before it lists the directory, so that an entry created meanwhile is in the list or in an event. */
static bool watch_one(const struct watching *watching, const char *path, char lists, size_t *room) {
  struct argument *args = watching->args, *answer = &args[ANSWER];
  struct packed_watch head = {0};
  size_t at = answer->length;
  if (!append(answer, room, &head, sizeof head)) return false;
  int fd = open_resolved(args[0].number, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, args[4].number);
  head.result = fd < 0 ? -1 : watch_open(watching, fd);
  if (head.result >= 0 && lists != '-' && list(fd, lists == '*', answer, room) < 0) {
    int error = errno;
    inotify_rm_watch(args[1].number, head.result);
    head.result = fail_with(error);
  }
  if (head.result < 0) {
    head.result = -errno;
    answer->length = at + sizeof head;
  }
  if (fd >= 0) close(fd);
  head.names_bytes = (uint32_t)(answer->length - at - sizeof head);
  memcpy(answer->bytes + at, &head, sizeof head);
  return head.result != -ENOMEM;
}

static void *watch_each(void *data) {
  struct watching *watching = data;
  struct argument *args = watching->args;
  int64_t until_ms = now_ms() + BATCH_MS;
  size_t room = 0;
  watching->result = -1;
  for (size_t at = 0; at < args[2].length; at += strlen(args[2].bytes + at) + 1) {
    if (at > 0 && now_ms() > until_ms) break;
    if (!watch_one(watching, args[2].bytes + at + 1, args[2].bytes[at], &room)) return NULL;
  }
  watching->result = 0;
  return NULL;
}

static void *watch_in_own_directory(void *data) {
  struct watching *watching = data;
  watching->has_own_directory = unshare(CLONE_FS) == 0;
  return watch_each(data);
}

/*
 * Runs the job on a new thread, which can have its own working directory. The thread must end after the job, because
 * the kernel does not report the removal of a directory while it is a thread's working directory.
 */
int agent_watch_each(struct argument *args) {
  struct watching watching = {.args = args};
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, NULL, watch_in_own_directory, &watching);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) pthread_join(thread, NULL);
  else watch_each(&watching);
  return watching.result < 0 ? fail_with(ENOMEM) : 0;
}
