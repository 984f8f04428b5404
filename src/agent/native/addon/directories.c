/*
 * Lists and empties open directories on libuv threads. A job ends after BATCH_MS, because other calls need the thread,
 * and because a slow file system must not be mistaken for a hung one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "file_job.h"

/*
 * RAW_BYTES: size of the buffer for getdents64(2), which has room for up to 340 entries.
 * ROOM_BYTES: initial size of the buffer for the answer.
 * PAGE_BYTES: an answer of this size or more is returned without another read.
 */
enum { RAW_BYTES = 8 * 1024, ROOM_BYTES = 16 * 1024, PAGE_BYTES = 16 * 1024, BATCH_MS = 200 };

/* An entry in the answer, followed by its name and link target. ../../files/entries/listing.ts parses it. */
struct packed_entry {
  uint32_t name_bytes, target_bytes;
  uint32_t error; /* errno of a failed stat, or 0; after a failure, only the inode and the type in `mode` are set */
  uint32_t mode, uid, gid;
  int64_t position;
  uint64_t inode, size, links;
  int64_t modified, accessed, changed;
  uint32_t modified_ns, accessed_ns, changed_ns;
  uint32_t unused;
};

/* Header of the answer to entriesIn. */
struct packed_directory {
  uint64_t device, inode;
  uint64_t at_end;
};

/* Stats an entry. Returns 0 or an errno: EXDEV for a mount point, which is not entered because it may hang. */
static int describe(int directory, const char *name, struct packed_entry *entry, char target[PATH_MAX]) {
  struct stat seen;
  int fd = open_resolved(directory, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV);
  if (fd < 0) return errno;
  int error = fstat(fd, &seen) < 0 ? errno : 0;
  if (error == 0 && S_ISLNK(seen.st_mode)) {
    ssize_t length = readlinkat(fd, "", target, PATH_MAX);
    if (length >= 0) entry->target_bytes = (uint32_t)length;
  }
  close(fd);
  if (error != 0) return error;
  entry->mode = seen.st_mode;
  entry->uid = seen.st_uid;
  entry->gid = seen.st_gid;
  entry->inode = seen.st_ino;
  entry->size = (uint64_t)seen.st_size;
  entry->links = seen.st_nlink;
  entry->modified = seen.st_mtim.tv_sec;
  entry->modified_ns = (uint32_t)seen.st_mtim.tv_nsec;
  entry->accessed = seen.st_atim.tv_sec;
  entry->accessed_ns = (uint32_t)seen.st_atim.tv_nsec;
  entry->changed = seen.st_ctim.tv_sec;
  entry->changed_ns = (uint32_t)seen.st_ctim.tv_nsec;
  return 0;
}

static bool add_entry(int directory, const struct kernel_entry *entry, bool describes, struct argument *answer,
                      size_t *room) {
  char target[PATH_MAX];
  struct packed_entry packed = {.position = entry->position, .inode = entry->inode, .mode = DTTOIF(entry->type)};
  packed.name_bytes = (uint32_t)strlen(entry->name);
  if (describes) packed.error = (uint32_t)describe(directory, entry->name, &packed, target);
  if (packed.error == ENOENT) return true; /* the entry was removed after it was listed */
  return append(answer, room, &packed, sizeof packed) && append(answer, room, entry->name, packed.name_bytes) &&
         append(answer, room, target, packed.target_bytes);
}

/* d_reclen is trusted: the kernel never returns a truncated entry. */
int agent_entries_in(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  _Alignas(struct kernel_entry) char raw[RAW_BYTES];
  int directory = args[0].number;
  bool describes = args[2].number != 0;
  struct stat own;
  int64_t position = 0, until_ms = now_ms() + BATCH_MS;
  size_t room = ROOM_BYTES;
  if (args[1].length == sizeof position) memcpy(&position, args[1].bytes, sizeof position);
  if (fstat(directory, &own) < 0 || lseek(directory, position, SEEK_SET) < 0) return -1;
  struct packed_directory head = {.device = own.st_dev, .inode = own.st_ino};
  answer->bytes = malloc(room);
  if (answer->bytes == NULL || !append(answer, &room, &head, sizeof head)) return fail_with(ENOMEM);
  bool is_late = false;
  /*
   * Reads until getdents64 returns 0, because only this shows that there are no more entries. This last call is made in
   * the same job, so that a small directory needs only one job.
   */
  while (!is_late && answer->length < PAGE_BYTES) {
    long count = syscall(SYS_getdents64, directory, raw, sizeof raw);
    if (count < 0 && answer->length == sizeof head) return -1;
    head.at_end = count == 0;
    if (count <= 0) break;
    for (long at = 0; at < count && !is_late;) {
      const struct kernel_entry *entry = (const struct kernel_entry *)(const void *)(raw + at);
      at += entry->record_bytes;
      position = entry->position;
      if (!is_dots(entry->name) && !add_entry(directory, entry, describes, answer, &room)) return fail_with(ENOMEM);
      is_late = now_ms() > until_ms;
    }
  }
  memcpy(answer->bytes, &head, sizeof head);
  return append(answer, &room, &position, sizeof position) ? 0 : fail_with(ENOMEM);
}

/*
 * The byte before each name says whether the entry was a directory when it was listed. If the entry has become a file
 * since (ENOTDIR), it is removed as a file.
 */
int agent_remove_each(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  int directory = args[0].number;
  int64_t until_ms = now_ms() + BATCH_MS;
  size_t room = ROOM_BYTES;
  answer->bytes = malloc(room);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
  for (size_t at = 0; at < args[1].length;) {
    const char *name = args[1].bytes + at + 1;
    int flags = args[1].bytes[at] == '/' ? AT_REMOVEDIR : 0;
    int result = unlinkat(directory, name, flags);
    if (result < 0 && flags != 0 && errno == ENOTDIR) result = unlinkat(directory, name, 0);
    uint32_t error = result < 0 ? (uint32_t)errno : 0;
    if (!append(answer, &room, &error, sizeof error)) return fail_with(ENOMEM);
    at += 1 + strlen(name) + 1;
    if (now_ms() > until_ms) break;
  }
  return 0;
}
