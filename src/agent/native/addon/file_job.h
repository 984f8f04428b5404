/*
 * Runs system calls on libuv threads, because a file system may hang. A call gets copies of its arguments. JavaScript
 * gets a promise that resolves with a number (a negative number is a negated errno) or with bytes.
 */
#ifndef AGENT_FILE_JOB_H
#define AGENT_FILE_JOB_H

#include "values.h"

/* An argument from JavaScript: a number, a boolean as 0 or 1, or a copy of bytes followed by a NUL. */
struct argument {
  int number;
  char *bytes;
  size_t length;
};

/*
 * Index of the answer in the array that a file_call gets. The arguments come before it. To return bytes instead of a
 * number, the file_call sets `bytes` of the answer to memory from malloc(3). The job frees this memory.
 */
enum { ANSWER = 5 };
/* A file_call sets the answer's `number` to this if its bytes are secret. The job then overwrites them before free(3). */
enum { SECRET = 1 };

/* The function that runs on the thread. Returns -1 with errno on failure. */
typedef int file_call(struct argument *args);

/* Queues a call with up to five arguments. */
napi_value on_thread(napi_env env, napi_callback_info info, file_call *call);

/*
 * Appends bytes to an answer. `room` is the size of the answer's buffer, which is enlarged if needed. Returns false if
 * there is no memory.
 */
bool append(struct argument *answer, size_t *room, const void *bytes, size_t count);

/* struct linux_dirent64 of getdents64(2). */
struct kernel_entry {
  uint64_t inode;
  int64_t position; /* position after this entry (d_off) */
  uint16_t record_bytes;
  uint8_t type;
  char name[];
};

/* openat2(2) with O_CLOEXEC, retried if a concurrent rename disturbs the lookup. */
int open_resolved(int directory, const char *path, int flags, int mode, int resolve);

/* Links an open file to a name, which must be free. */
int link_descriptor(int fd, int directory, const char *name);
/*
 * Links an open file to a name. If the name is taken, replaces the existing file by way of the temporary name, or fails
 * with EEXIST if `temporary` is empty.
 */
int place_in(int fd, int directory, const char *name, const char *temporary);
/* Renames an entry. With `exclusive`, fails with EEXIST if the name is taken. */
int move_in(int directory, const char *from, int target, const char *to, bool exclusive);

bool is_dots(const char *name);
int64_t now_ms(void);

/*
 * The path of an open file in /proc/self/fd, for system calls that do not accept a descriptor. Works only if /proc is
 * mounted.
 */
struct descriptor_path {
  char text[sizeof "/proc/self/fd/-2147483648"];
};
struct descriptor_path descriptor_path(int fd);

#endif
