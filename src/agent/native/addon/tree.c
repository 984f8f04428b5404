/*
 * Writes and reads many small entries below a folder in one job on a libuv thread, as files.c does: a file each would
 * cost ten hand-overs to a thread. Paths are looked up beneath the folder (openat2(2)), whatever the tree does
 * meanwhile. A job ends early when its time is over: other calls need the thread.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "file_job.h"

enum { BATCH_MS = 200, RAW_BYTES = 1024, LEAST_HOLE_BYTES = 64 * 1024 };

/* What an entry is to become. ../../files/tree/batch.ts writes it. ATTRIBUTES: of a folder whose content is there. */
enum { FILE_ENTRY = 1, FOLDER_ENTRY, SYMLINK_ENTRY, HARD_LINK_ENTRY, ATTRIBUTES_ENTRY };
enum { OVERWRITE = 1, NO_SYMLINKS = 2, SYNC = 4, NO_MOUNTS = 8, HAS_MODIFIED = 1, HAS_GROUP = 2, HAS_OWNER = 4, HAS_MODE = 8 };

/* Before a path with its NUL, and the content, or a link's target with its NUL. */
struct entry {
  uint32_t path_bytes, data_bytes;
  uint32_t type, has;
  uint32_t mode, uid, gid, modified_ns;
  int64_t modified;
};

/* The folder that is written to, and the one that the last entry lay in. */
struct tree {
  int root, flags;
  /* A folder whose file system the caller syncs at the end, as it does root's; root for none. */
  int synced;
  const char *temporary;
  /* The same where something may be replaced; else empty. */
  const char *replacing;
  int folder;
  /* Of a sync: what was written may not be on the disk. */
  int error;
  char path[PATH_MAX];
  struct stat seen;
};

static int beneath(const struct tree *tree, const char *path, int flags) {
  int resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (tree->flags & NO_SYMLINKS ? RESOLVE_NO_SYMLINKS : 0) |
                (tree->flags & NO_MOUNTS ? RESOLVE_NO_XDEV : 0);
  return open_resolved(tree->root, path[0] == '\0' ? "." : path, flags, 0, resolve);
}

/* A folder of root's that just came to be. Its parent's owner could put another there: one that holds something stays. */
static int open_made(int parent, const char *name) {
  _Alignas(8) char raw[RAW_BYTES];
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  long first = syscall(SYS_getdents64, fd, raw, sizeof raw);
  /* "." and ".." alone: two records of 24 bytes. */
  if (first >= 0 && first <= 48) return fd;
  close(fd);
  return refuse(EEXIST);
}

/* Makes a folder with these attributes, or none. Returns an errno where they are what fails. */
static int make_folder(int parent, const char *name, uid_t uid, gid_t gid, mode_t mode) {
  if (mkdirat(parent, name, 0700) < 0) return -1;
  int fd = open_made(parent, name), result = -1;
  if (fd >= 0) result = fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0 ? errno : 0;
  close_after(fd);
  if (result == 0) return 0;
  int error = errno;
  unlinkat(parent, name, AT_REMOVEDIR);
  errno = error;
  return result;
}

int agent_make_folder_in(struct argument *args) {
  uid_t uid = (uid_t)args[2].number;
  gid_t gid = (gid_t)args[3].number;
  return make_folder(args[0].number, args[1].bytes, uid, gid, (mode_t)args[4].number);
}

/* One that an item needs, owned like it: mode 0755. A setgid folder hands its group and setgid down (mkdir(2)). */
static int make_between(int parent, const char *name, const struct entry *entry) {
  struct stat above;
  if (fstat(parent, &above) < 0) return -1;
  bool inherits = (above.st_mode & S_ISGID) != 0 && (entry->has & HAS_GROUP) == 0;
  gid_t gid = inherits ? above.st_gid : entry->gid;
  return make_folder(parent, name, entry->uid, gid, inherits ? S_ISGID | 0755 : 0755);
}

/* Makes missing folders above an entry. */
static int make_parents(struct tree *tree, char *path, const struct entry *entry) {
  for (char *slash = path; *slash != '\0';) {
    slash = strchrnul(slash + 1, '/');
    char end = *slash;
    *slash = '\0';
    int fd = beneath(tree, path, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT) {
      char *name = strrchr(path, '/');
      if (name != NULL) *name = '\0';
      int parent = beneath(tree, name == NULL ? "" : path, O_PATH | O_DIRECTORY);
      if (name != NULL) *name = '/';
      int made = parent < 0 ? -1 : make_between(parent, name == NULL ? path : name + 1, entry);
      close_after(parent);
      if (made != 0 && errno != EEXIST) return -1;
      fd = beneath(tree, path, O_PATH | O_DIRECTORY);
    }
    if (fd < 0) return -1;
    close(fd);
    *slash = end;
  }
  return 0;
}

/* A file system that the caller does not know of, such as one behind a link in a mount, is synced at once. */
static int sync_elsewhere(const struct tree *tree) {
  struct stat root, synced;
  if (tree->folder < 0) return 0;
  if (fstat(tree->root, &root) < 0 || fstat(tree->synced, &synced) < 0) return -1;
  if (root.st_dev == tree->seen.st_dev || synced.st_dev == tree->seen.st_dev) return 0;
  int fd = openat(tree->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int result = fd < 0 ? -1 : syncfs(fd);
  close_after(fd);
  return result;
}

static void leave(struct tree *tree) {
  if ((tree->flags & SYNC) != 0 && sync_elsewhere(tree) < 0) tree->error = errno;
  if (tree->folder >= 0) close(tree->folder);
  tree->folder = -1;
}

/* Opens the folder that an entry lies in, and keeps it for the next. Returns the entry's name, NULL with errno. */
static const char *enter(struct tree *tree, const char *path, const struct entry *entry) {
  const char *slash = strrchr(path, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - path);
  const char *name = slash == NULL ? path : slash + 1;
  if (name[0] == '\0' || is_dots(name) || length >= PATH_MAX) {
    errno = length >= PATH_MAX ? ENAMETOOLONG : EINVAL;
    return NULL;
  }
  if (tree->folder >= 0 && strncmp(tree->path, path, length) == 0 && tree->path[length] == '\0') return name;
  leave(tree);
  memcpy(tree->path, path, length);
  tree->path[length] = '\0';
  tree->folder = beneath(tree, tree->path, O_PATH | O_DIRECTORY);
  if (tree->folder < 0 && errno == ENOENT && length > 0 && make_parents(tree, tree->path, entry) == 0)
    tree->folder = beneath(tree, tree->path, O_PATH | O_DIRECTORY);
  if (tree->folder < 0 || fstat(tree->folder, &tree->seen) < 0) return NULL;
  return name;
}

static int drop_temporary(const struct tree *tree) {
  int error = errno;
  unlinkat(tree->folder, tree->temporary, 0);
  return refuse(error);
}

static int finish_file(int fd, const struct entry *entry, const char *data) {
  for (size_t at = 0; at < entry->data_bytes;) {
    ssize_t count = write(fd, data + at, entry->data_bytes - at);
    if (count < 0 && errno != EINTR) return -1;
    if (count > 0) at += (size_t)count;
  }
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = entry->modified, .tv_nsec = entry->modified_ns}};
  struct stat made;
  if (fchown(fd, entry->uid, entry->gid) < 0 || fchmod(fd, entry->mode) < 0) return -1;
  /* The kernel leaves out what the agent may not set, without a word. */
  if ((entry->mode & 07000) != 0 && (fstat(fd, &made) < 0 || (made.st_mode & 07777) != entry->mode)) return refuse(EPERM);
  return entry->has & HAS_MODIFIED ? futimens(fd, times) : 0;
}

/* Without a name where the file system can, and the kernel lets it have one later; else under the temporary one. */
static int put_file(const struct tree *tree, const char *name, const struct entry *entry, const char *data) {
  int fd = openat(tree->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) {
    int result = finish_file(fd, entry, data);
    bool isWhole = result == 0;
    if (isWhole) result = place_in(fd, tree->folder, name, tree->replacing);
    close_after(fd);
    if (result == 0 || !isWhole || (errno != ENOENT && errno != EPERM)) return result;
  }
  fd = openat(tree->folder, tree->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  int result = finish_file(fd, entry, data);
  close_after(fd);
  bool exclusive = tree->replacing[0] == '\0';
  if (result == 0) result = move_in(tree->folder, tree->temporary, tree->folder, name, exclusive);
  return result == 0 ? 0 : drop_temporary(tree);
}

static int put_folder(const struct tree *tree, const char *name, const struct entry *entry) {
  /* Closed to others until its content is there; ATTRIBUTES opens it. */
  if (make_folder(tree->folder, name, entry->uid, entry->gid, entry->mode | 0700) == 0) return 0;
  if (errno != EEXIST) return -1;
  int fd = openat(tree->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOTDIR || errno == ELOOP ? refuse(EEXIST) : -1;
  close(fd);
  return 0;
}

/* Returns an errno where it cannot have its owner. */
static int set_link(const struct tree *tree, const char *name, const struct entry *entry) {
  struct stat made;
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = entry->modified, .tv_nsec = entry->modified_ns}};
  int fd = openat(tree->folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  int result = fstat(fd, &made);
  /* Somebody may have put something else there. */
  if (result == 0 && !S_ISLNK(made.st_mode)) result = refuse(ESTALE);
  if (result == 0 && fchownat(fd, "", entry->uid, entry->gid, AT_EMPTY_PATH) < 0) result = errno;
  /* Linux before 5.8 sets no time of a link by its descriptor. */
  if (result == 0 && entry->has & HAS_MODIFIED) utimensat(fd, "", times, AT_EMPTY_PATH);
  close_after(fd);
  return result;
}

static int put_symlink(const struct tree *tree, const char *name, const struct entry *entry, const char *target) {
  if (symlinkat(target, tree->folder, name) == 0) return set_link(tree, name, entry);
  if (errno != EEXIST || tree->replacing[0] == '\0') return -1;
  if (symlinkat(target, tree->folder, tree->temporary) < 0) return -1;
  bool isSet = set_link(tree, tree->temporary, entry) == 0;
  return isSet && renameat(tree->folder, tree->temporary, tree->folder, name) == 0 ? 0 : drop_temporary(tree);
}

int agent_make_link_in(struct argument *args) {
  const struct tree tree = {.folder = args[0].number, .replacing = ""};
  const struct entry entry = {.uid = (uid_t)args[3].number, .gid = (gid_t)args[4].number};
  return put_symlink(&tree, args[1].bytes, &entry, args[2].bytes);
}

/* The target is a path of the tree, and a regular file. */
static int put_hard_link(const struct tree *tree, const char *name, const char *target) {
  struct stat seen;
  int fd = beneath(tree, target, O_PATH | O_NOFOLLOW);
  if (fd < 0) return -1;
  int result = fstat(fd, &seen);
  if (result == 0 && !S_ISREG(seen.st_mode)) result = refuse(EINVAL);
  if (result == 0) result = place_in(fd, tree->folder, name, tree->replacing);
  close_after(fd);
  return result;
}

static int set_attributes(const struct tree *tree, const char *name, const struct entry *entry) {
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = entry->modified, .tv_nsec = entry->modified_ns}};
  int fd = openat(tree->folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  int result = fchmod(fd, entry->mode);
  if (result == 0 && entry->has & HAS_MODIFIED) result = futimens(fd, times);
  close_after(fd);
  return result;
}

static int put(struct tree *tree, struct entry *entry, const char *path, const char *data) {
  const char *name = enter(tree, path, entry);
  if (name == NULL) return -1;
  if ((entry->has & HAS_GROUP) == 0 && (tree->seen.st_mode & S_ISGID) != 0) entry->gid = tree->seen.st_gid;
  switch (entry->type) {
    case FILE_ENTRY: return put_file(tree, name, entry, data);
    case FOLDER_ENTRY: return put_folder(tree, name, entry);
    case SYMLINK_ENTRY: return put_symlink(tree, name, entry, data);
    case HARD_LINK_ENTRY: return put_hard_link(tree, name, data);
    case ATTRIBUTES_ENTRY: return set_attributes(tree, name, entry);
    default: return refuse(EINVAL);
  }
}

int agent_write_entries(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  const struct argument *entries = &args[1];
  struct tree tree = {.root = args[0].number, .flags = args[2].number, .temporary = args[3].bytes, .folder = -1};
  tree.synced = args[4].number;
  tree.replacing = tree.flags & OVERWRITE ? tree.temporary : "";
  int64_t until_ms = now_ms() + BATCH_MS;
  size_t count = 0;
  answer->bytes = malloc(entries->length / sizeof(struct entry) * sizeof(int32_t) + 1);
  if (answer->bytes == NULL) return refuse(ENOMEM);
  for (size_t at = 0; at + sizeof(struct entry) <= entries->length && (count == 0 || now_ms() < until_ms); count++) {
    struct entry entry;
    memcpy(&entry, entries->bytes + at, sizeof entry);
    const char *path = entries->bytes + at + sizeof entry, *data = path + entry.path_bytes;
    at += sizeof entry + entry.path_bytes + entry.data_bytes;
    if (entry.type == SYMLINK_ENTRY || entry.type == HARD_LINK_ENTRY) entry.data_bytes = 0;
    int32_t error = put(&tree, &entry, path, data) != 0 ? errno : 0;
    memcpy(answer->bytes + count * sizeof error, &error, sizeof error);
  }
  leave(&tree);
  answer->length = count * sizeof(int32_t);
  return tree.error == 0 ? 0 : refuse(tree.error);
}

/* Whether the file may be given a name later: "/" is taken, so EEXIST means yes. */
static bool can_be_placed(int fd, int folder) {
  return link_descriptor(fd, folder, "/") < 0 && errno == EEXIST;
}

/*
 * A small file without a name, from one record, whose path is its name in the folder. What is there under that name
 * gives what the record lacks. Returns a descriptor, or -1: nothing is made, and a step after the other may tell why.
 */
int agent_make_small_file(struct argument *args) {
  int folder = args[0].number;
  struct entry entry;
  struct stat above, there = {0};
  if (args[1].length < sizeof entry) return refuse(EINVAL);
  memcpy(&entry, args[1].bytes, sizeof entry);
  if (args[1].length < sizeof entry + entry.path_bytes + entry.data_bytes) return refuse(EINVAL);
  const char *name = args[1].bytes + sizeof entry;
  /* What is mounted there may hang. */
  int seen = open_resolved(folder, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV);
  bool is_new = seen < 0 && errno == ENOENT;
  bool is_file = seen >= 0 && fstat(seen, &there) == 0 && S_ISREG(there.st_mode);
  close_after(seen);
  if (!is_new && (!is_file || args[2].number != 0)) return refuse(EEXIST);
  if (fstat(folder, &above) < 0) return -1;
  bool inherits = is_new && (above.st_mode & S_ISGID) != 0;
  if ((entry.has & HAS_OWNER) == 0 && is_file) entry.uid = there.st_uid;
  if ((entry.has & HAS_GROUP) == 0 && (is_file || inherits)) entry.gid = is_file ? there.st_gid : above.st_gid;
  if ((entry.has & HAS_MODE) == 0 && is_file) entry.mode = there.st_mode & 07777;
  int fd = openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  if (can_be_placed(fd, folder) && finish_file(fd, &entry, name + entry.path_bytes) == 0) return fd;
  close_after(fd);
  return -1;
}

int agent_sync_file_system(struct argument *args) {
  return syncfs(args[0].number);
}

/*
 * Where a file's next data from a place on begins and ends; both the file's end where there is none. A small hole counts
 * as data: telling it takes as much as its zeros. Whoever cannot tell has no holes. Reading goes on from the place.
 */
int agent_next_data(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  int fd = args[0].number;
  int64_t from = 0, data[2], until_ms = now_ms() + BATCH_MS;
  memcpy(&from, args[1].bytes, args[1].length == sizeof from ? sizeof from : 0);
  answer->bytes = malloc(sizeof data);
  if (answer->bytes == NULL) return refuse(ENOMEM);
  data[0] = lseek(fd, from, SEEK_DATA);
  if (data[0] < 0) {
    struct stat seen;
    bool is_none = errno == ENXIO && fstat(fd, &seen) == 0;
    data[0] = is_none ? seen.st_size : from;
    data[1] = is_none ? seen.st_size : INT64_MAX;
  } else {
    for (int64_t next = data[0]; next >= 0;) {
      int64_t hole = lseek(fd, next, SEEK_HOLE);
      data[1] = hole < 0 ? INT64_MAX : hole;
      next = hole < 0 || now_ms() > until_ms ? -1 : lseek(fd, hole, SEEK_DATA);
      if (next - hole >= LEAST_HOLE_BYTES) break;
    }
  }
  lseek(fd, from, SEEK_SET);
  memcpy(answer->bytes, data, sizeof data);
  answer->length = sizeof data;
  return 0;
}

/* One file's bytes behind its size (32 bits); a negative size is an errno: EFBIG, it has more than there is room for. */
static int read_file(const struct tree *tree, const char *path, char *bytes, size_t room) {
  struct stat seen;
  int fd = beneath(tree, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  int result = fstat(fd, &seen);
  if (result == 0 && !S_ISREG(seen.st_mode)) result = refuse(EINVAL);
  size_t filled = 0;
  while (result == 0) {
    /* One byte more than there is room for shows that it has grown. */
    char over;
    ssize_t count = filled < room ? read(fd, bytes + filled, room - filled) : read(fd, &over, 1);
    if (count == 0) break;
    if (count < 0) result = errno == EINTR ? 0 : -1;
    else if (filled == room) result = refuse(EFBIG);
    else filled += (size_t)count;
  }
  close_after(fd);
  return result < 0 ? -1 : (int)filled;
}

/* Paths, each with a NUL. Stops before a file for which there is no room left. */
int agent_read_entries(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  const struct argument *paths = &args[1];
  const struct tree tree = {.root = args[0].number, .flags = args[2].number, .folder = -1};
  size_t each = (size_t)args[3].number, room = (size_t)args[4].number;
  int64_t until_ms = now_ms() + BATCH_MS;
  answer->bytes = malloc(room);
  if (answer->bytes == NULL) return refuse(ENOMEM);
  for (size_t at = 0; at < paths->length && answer->length + sizeof(int32_t) + each <= room;) {
    const char *path = paths->bytes + at;
    char *place = answer->bytes + answer->length;
    int32_t size = (int32_t)read_file(&tree, path, place + sizeof size, each);
    if (size < 0) size = -errno;
    memcpy(place, &size, sizeof size);
    answer->length += sizeof size + (size > 0 ? (size_t)size : 0);
    at += strlen(path) + 1;
    if (now_ms() > until_ms) break;
  }
  return 0;
}
