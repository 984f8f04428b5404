/*
 * Calls of the kernel on libuv threads, for files.c and directories.c: a file system may hang. A call gets copies of
 * its arguments, and JavaScript a promise of a number (negative: an errno) or of bytes.
 */
#ifndef AGENT_FILE_JOB_H
#define AGENT_FILE_JOB_H

#include "values.h"

/* A number, or a boolean as 0 or 1; or a copy of bytes, with a NUL behind them. */
struct argument {
  int number;
  char *bytes;
  size_t length;
};

/*
 * Behind the arguments: bytes for JavaScript instead of a number, from malloc(3); NULL: none. Its number can be SECRET.
 */
enum { ANSWER = 5 };
/* The answer's bytes are overwritten once JavaScript has them. */
enum { SECRET = 1 };

/* What a thread does, with the arguments of the call. Returns -1 with errno on failure. */
typedef int file_call(struct argument *args);

/* Queues a job with up to five arguments. */
napi_value on_thread(napi_env env, napi_callback_info info, file_call *call);

/* openat2(2), repeated when somebody renames a directory meanwhile. O_CLOEXEC is set. */
int open_resolved(int directory, const char *path, int flags, int mode, int resolve);

/* Gives an open file a name in a directory, which must be free. */
int link_descriptor(int fd, int directory, const char *name);
/* The same, in place of what has the name; through a temporary one, or if that is empty, EEXIST. */
int place_in(int fd, int directory, const char *name, const char *temporary);
/* Renames an entry; `exclusive`: EEXIST where the name is taken. */
int move_in(int directory, const char *from, int target, const char *to, bool exclusive);

/* "." or "..". */
bool is_dots(const char *name);
int64_t now_ms(void);

/* The path that leads to an open file, for calls that take no descriptor. Leads nowhere without /proc. */
struct descriptor_path {
  char text[sizeof "/proc/self/fd/-2147483648"];
};
struct descriptor_path descriptor_path(int fd);

#endif
