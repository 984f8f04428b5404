#include "entry.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* number of the system call, which exists since Linux 6.6 */
#endif

enum { RAW_BYTES = 1024, STEP_SHIFT = 16 };

bool read_record(const struct argument *records, size_t at, struct entry *entry, const char **path, const char **data) {
  size_t left = records->length > at ? records->length - at : 0;
  if (left < sizeof *entry) return false;
  memcpy(entry, records->bytes + at, sizeof *entry);
  left -= sizeof *entry;
  if (entry->path_bytes > left || entry->data_bytes > left - entry->path_bytes) return false;
  *path = records->bytes + at + sizeof *entry;
  *data = *path + entry->path_bytes;
  return true;
}

int fail_at(int step) {
  errno = step << STEP_SHIFT | (errno & ((1 << STEP_SHIFT) - 1));
  return -1;
}

bool has_failed_at(int step, int error) {
  return errno == (step << STEP_SHIFT | error);
}

/*
 * Opens an existing entry with O_PATH. Does not follow a link or enter a mount, which may hang. Linux before 5.6 lacks
 * openat2(2); there this function also enters mounts.
 */
static int open_there(int directory, const char *name) {
  int fd = open_resolved(directory, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  return openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* Stats the regular file that the entry will replace. Returns false if no regular file has this name. */
static bool find_replaced(const struct place *place, const char *name, struct stat *there) {
  int fd = open_there(place->directory, name);
  bool is_file = fd >= 0 && fstat(fd, there) == 0 && S_ISREG(there->st_mode);
  close_keep_errno(fd);
  return is_file;
}

void complete_entry(const struct place *place, const char *name, struct entry *entry) {
  const uint32_t all = HAS_OWNER | HAS_GROUP | HAS_MODE;
  bool inherits = (entry->has & HAS_GROUP) == 0 && (place->seen.st_mode & S_ISGID) != 0;
  struct stat there;
  bool replaces = entry->type == FILE_ENTRY && place->overwrites && (entry->has & all) != all;
  if (replaces && find_replaced(place, name, &there)) {
    mode_t bits = entry->has & PLAIN_MODE ? 0777 : 07777;
    if ((entry->has & HAS_OWNER) == 0) entry->uid = there.st_uid;
    if ((entry->has & HAS_GROUP) == 0) entry->gid = there.st_gid;
    if ((entry->has & HAS_MODE) == 0) entry->mode = there.st_mode & bits;
  } else if (inherits) {
    entry->gid = place->seen.st_gid;
    /*
     * In a setgid directory, mkdir(2) also sets the setgid bit of the new directory. The same is done here, except if
     * the record gives an exact mode, because an exact mode says whether this bit is set.
     */
    bool is_exact = (entry->has & HAS_MODE) != 0 && (entry->has & PLAIN_MODE) == 0;
    if (entry->type == DIRECTORY_ENTRY && !is_exact) entry->mode |= S_ISGID;
  }
  entry->has |= all;
}

/*
 * Tries three system calls. fchmod(2) rejects an O_PATH descriptor (EBADF). fchmodat2 may be missing (ENOSYS), or
 * rejected by a seccomp filter that does not know it (EPERM). chmod(2) with the path in /proc is the last one.
 */
static int change_mode(int fd, mode_t mode) {
  int result = fchmod(fd, mode);
  if (result == 0 || errno != EBADF) return result;
  result = (int)syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH);
  if (result == 0 || (errno != ENOSYS && errno != EPERM)) return result;
  return chmod(descriptor_path(fd).text, mode);
}

/* The kernel silently drops mode bits that the agent may not set, so the resulting mode is checked. */
static int set_mode(int fd, const struct entry *entry) {
  struct stat seen;
  mode_t mode = entry->mode;
  if ((entry->has & PLAIN_MODE) != 0 && entry->type == ATTRIBUTES_ENTRY) {
    if (fstat(fd, &seen) < 0) return -1;
    mode |= seen.st_mode & 07000;
  }
  if (change_mode(fd, mode) < 0) return -1;
  if ((mode & 07000) == 0) return 0;
  return fstat(fd, &seen) < 0 ? -1 : (seen.st_mode & 07777) == mode ? 0 : fail_with(EPERM);
}

/* Before Linux 5.8, utimensat(2) rejects O_PATH descriptors, so the path in /proc is used instead. */
static int set_modified(int fd, const struct entry *entry) {
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->modified, .tv_nsec = entry->modified_ns}};
  int result = utimensat(fd, "", times, AT_EMPTY_PATH);
  if (result == 0 || (errno != EINVAL && errno != ENOENT)) return result;
  return utimensat(AT_FDCWD, descriptor_path(fd).text, times, 0);
}

int set_attributes(int fd, const struct entry *entry) {
  uid_t uid = entry->has & HAS_OWNER ? entry->uid : (uid_t)-1;
  gid_t gid = entry->has & HAS_GROUP ? entry->gid : (gid_t)-1;
  bool has_owner = (entry->has & (HAS_OWNER | HAS_GROUP)) != 0;
  if (has_owner && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0) return fail_at(CHOWN_STEP);
  if ((entry->has & HAS_MODE) != 0 && set_mode(fd, entry) < 0) return fail_at(CHMOD_STEP);
  if ((entry->has & HAS_MODIFIED) != 0 && set_modified(fd, entry) < 0) return fail_at(UTIME_STEP);
  return 0;
}

/*
 * Whether the file can be linked to a name later. The test tries the name "/", which always exists: EEXIST means that
 * linking is possible.
 */
static bool can_be_placed(int fd, int directory) {
  return link_descriptor(fd, directory, "/") < 0 && errno == EEXIST;
}

/* Opens a new file, if possible without a name: a file without a name disappears if the agent is killed. */
static int open_new(struct place *place) {
  if (place->kind != NAMED) {
    int fd = openat(place->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 && (place->kind == UNNAMED || can_be_placed(fd, place->directory))) {
      place->kind = UNNAMED;
      return fd;
    }
    close_keep_errno(fd);
    if (place->temporary[0] == '\0') return -1;
    place->kind = NAMED;
  }
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;
  return openat(place->directory, place->temporary, flags, 0600);
}

void drop_temporary(const struct place *place) {
  int error = errno;
  unlinkat(place->directory, place->temporary, 0);
  errno = error;
}

static int make_file(struct place *place, const struct entry *entry, const char *data) {
  int fd = open_new(place);
  if (fd < 0) return fail_at(CREATE_STEP);
  for (size_t at = 0; at < entry->data_bytes;) {
    ssize_t count = write(fd, data + at, entry->data_bytes - at);
    if (count < 0 && errno != EINTR) {
      close_keep_errno(fd);
      if (place->kind == NAMED) drop_temporary(place);
      return fail_at(WRITE_STEP);
    }
    if (count > 0) at += (size_t)count;
  }
  return fd;
}

/*
 * Opens a directory that this process has just created as root. Rejects a directory that is not empty, because the
 * owner of the parent may have replaced the new directory.
 */
static int open_made(int parent, const char *name) {
  _Alignas(8) char raw[RAW_BYTES];
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  long first = syscall(SYS_getdents64, fd, raw, sizeof raw);
  /* For an empty directory, getdents64 returns 48 bytes: a record of 24 bytes each for "." and "..". */
  if (first >= 0 && first <= 48) return fd;
  close(fd);
  return fail_with(EEXIST);
}

/* Creates a directory and sets its attributes. If an attribute cannot be set, removes the directory again. */
static int make_directory(const struct place *place, const char *name, const struct entry *entry) {
  if (mkdirat(place->directory, name, 0700) < 0) return -1;
  int fd = open_made(place->directory, name);
  int result = fd < 0 ? -1 : set_attributes(fd, entry);
  close_keep_errno(fd);
  if (result == 0) return 0;
  int error = errno;
  unlinkat(place->directory, name, AT_REMOVEDIR);
  return fail_with(error);
}

/*
 * Sets the attributes of a new symbolic link, except the mode. Fails with ESTALE if another process has replaced the
 * link by an entry of another type.
 */
static int set_link(const struct place *place, const char *name, const struct entry *entry) {
  struct stat made;
  struct entry own = *entry;
  own.has &= ~(uint32_t)HAS_MODE;
  int fd = openat(place->directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  int result = fstat(fd, &made);
  if (result == 0 && !S_ISLNK(made.st_mode)) result = fail_with(ESTALE);
  if (result == 0) result = set_attributes(fd, &own);
  close_keep_errno(fd);
  return result;
}

static int make_link(const struct place *place, const char *name, const struct entry *entry, const char *target) {
  if (symlinkat(target, place->directory, name) == 0) return set_link(place, name, entry);
  if (errno != EEXIST || !place->overwrites) return -1;
  if (symlinkat(target, place->directory, place->temporary) < 0) return -1;
  if (set_link(place, place->temporary, entry) == 0 &&
      renameat(place->directory, place->temporary, place->directory, name) == 0)
    return 0;
  drop_temporary(place);
  return -1;
}

int make_entry(struct place *place, const char *name, const struct entry *entry, const char *data) {
  switch (entry->type) {
    case FILE_ENTRY: return make_file(place, entry, data);
    case DIRECTORY_ENTRY: return make_directory(place, name, entry);
    case SYMLINK_ENTRY: return make_link(place, name, entry, data);
    default: return fail_with(EINVAL);
  }
}

/* Syncs a directory. Errors of file systems that cannot sync directories are ignored. */
static int sync_folder(int directory) {
  if (fsync(directory) == 0 || errno == EINVAL || errno == ENOTSUP || errno == ENOSYS) return 0;
  return fail_at(SYNC_DIRECTORY_STEP);
}

static int give_name(const struct place *place, const char *name, int fd) {
  if (place->kind == NAMED)
    return move_in(place->directory, place->temporary, place->directory, name, !place->overwrites);
  return place_in(fd, place->directory, name, place->overwrites ? place->temporary : "");
}

int commit_entry(const struct place *place, const char *name, const struct entry *entry, int fd, int stages) {
  if ((stages & APPLY) != 0) {
    struct stat made;
    /*
     * A file needs no check of its size if it has no name and make_entry wrote its whole content: no other process
     * could open the file and change it.
     */
    bool is_whole = place->kind == UNNAMED && entry->data_bytes > 0 && entry->data_bytes == entry->size;
    if (!is_whole && fstat(fd, &made) < 0) return fail_at(WRITE_STEP);
    if (!is_whole && made.st_size != entry->size) {
      errno = EIO;
      return fail_at(WRITE_STEP);
    }
    if (set_attributes(fd, entry) < 0) return -1;
    if ((stages & SYNC_ENTRY) != 0 && fsync(fd) < 0) return fail_at(SYNC_STEP);
  }
  if ((stages & NAME) == 0) return 0;
  if (give_name(place, name, fd) < 0) return fail_at(PLACE_STEP);
  return (stages & SYNC_ENTRY) != 0 ? sync_folder(place->directory) : 0;
}

/*
 * Flags of makeEntry. NO_OTHERS: fail with EEXIST if the name is taken by anything but a regular file. EXCLUSIVE: fail
 * with EEXIST if the name is taken.
 */
enum { NO_OTHERS = 1, EXCLUSIVE = 2 };

static int check_name(const struct place *place, const char *name, int flags) {
  struct stat there;
  if (flags == 0) return 0;
  int fd = open_there(place->directory, name);
  if (fd < 0) return errno == ENOENT ? 0 : -1;
  bool is_file = fstat(fd, &there) == 0 && S_ISREG(there.st_mode);
  close_keep_errno(fd);
  return is_file && (flags & EXCLUSIVE) == 0 ? 0 : fail_with(EEXIST);
}

/*
 * Arguments: the descriptor of a directory, a record whose path is a name in the directory, a temporary name, and
 * flags.
 */
int agent_make_entry(struct argument *args) {
  struct place place = {.directory = args[0].number, .temporary = args[2].bytes};
  struct entry entry;
  const char *name, *data;
  if (!read_record(&args[1], 0, &entry, &name, &data)) return fail_with(EINVAL);
  if (entry.type == FILE_ENTRY && place.temporary[0] != '\0') place.kind = NAMED;
  if (fstat(place.directory, &place.seen) < 0 || check_name(&place, name, args[3].number) < 0) return -1;
  if (entry.type != FILE_ENTRY) complete_entry(&place, name, &entry);
  return make_entry(&place, name, &entry, data);
}

/* Flags of commitEntry, in the same argument as the stages (APPLY, NAME, SYNC_ENTRY). */
enum { OVERWRITES = 8, HAS_TEMPORARY = 16 };

/*
 * Arguments:
 *   0, 1: the descriptors of the file and of its directory
 *   2, 3: the record and the temporary name
 *   4: the stages, combined with the flags above
 * If the stages include NAME, closes both descriptors on success, so that JavaScript needs no further jobs for closing.
 */
int agent_commit_entry(struct argument *args) {
  int fd = args[0].number, flags = args[4].number;
  struct place place = {
    .directory = args[1].number, .temporary = args[3].bytes, .overwrites = (flags & OVERWRITES) != 0};
  struct entry entry;
  const char *name, *data;
  if (!read_record(&args[2], 0, &entry, &name, &data)) return fail_with(EINVAL);
  place.kind = flags & HAS_TEMPORARY ? NAMED : UNNAMED;
  if ((flags & APPLY) != 0) {
    if (fstat(place.directory, &place.seen) < 0) return -1;
    complete_entry(&place, name, &entry);
  }
  if (commit_entry(&place, name, &entry, fd, flags) < 0) return -1;
  if ((flags & NAME) != 0) {
    close(fd);
    close(place.directory);
  }
  return 0;
}

/*
 * Sets the attributes of an open file. Arguments: a descriptor, which may be an O_PATH descriptor, and a record with
 * the attributes.
 */
int agent_set_attributes(struct argument *args) {
  struct entry entry;
  const char *name, *data;
  if (!read_record(&args[1], 0, &entry, &name, &data)) return fail_with(EINVAL);
  return set_attributes(args[0].number, &entry);
}
