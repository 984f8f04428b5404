/*
 * Writes and reads many small entries below a directory in one job on a libuv thread, instead of ten jobs per file.
 * openat2(2) keeps paths below the directory even if the tree changes concurrently. A job ends after BATCH_MS, because
 * other calls need the thread.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

enum { BATCH_MS = 200, LEAST_HOLE_BYTES = 64 * 1024 };

enum { OVERWRITE = 1, NO_SYMLINKS = 2, SYNC = 4, NO_MOUNTS = 8 };

/*
 * State of one writeEntries job. It keeps the directory of the last entry open, because the next entry is usually in
 * the same directory.
 */
struct tree {
  int root, flags;
  /*
   * Descriptor of a directory, which may be the same directory as `root`. The job does not sync the file systems of
   * these two directories, because the caller does so at the end.
   */
  int synced;
  /* The directory of the last entry; its descriptor is -1 while no directory is open. */
  struct place place;
  char path[PATH_MAX];
  /*
   * errno of the last failed sync; 0 if none has failed. Entries that were written before the failure may not be on
   * the disk.
   */
  int error;
  /*
   * True after the first file whose name was taken. From then on, put_file looks up each name and no longer assumes
   * that it is free.
   */
  bool replaces;
};

static int beneath(const struct tree *tree, const char *path, int flags) {
  int resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (tree->flags & NO_SYMLINKS ? RESOLVE_NO_SYMLINKS : 0) |
                (tree->flags & NO_MOUNTS ? RESOLVE_NO_XDEV : 0);
  return open_resolved(tree->root, path[0] == '\0' ? "." : path, flags, 0, resolve);
}

/*
 * Opens a path, and never leaves the root, like `beneath`. But where `beneath` rejects a link with an absolute target,
 * this function looks for the target inside the root, as in a chroot.
 */
static int within(const struct tree *tree, const char *path, int flags) {
  int fd = beneath(tree, path, flags);
  if (fd >= 0 || errno != EXDEV || (tree->flags & NO_SYMLINKS) != 0) return fd;
  int resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | (tree->flags & NO_MOUNTS ? RESOLVE_NO_XDEV : 0);
  return open_resolved(tree->root, path, flags, 0, resolve);
}

/*
 * Creates a missing parent directory with the entry's owner and mode 0755. In a setgid directory, the new directory
 * inherits the group and the setgid bit (mkdir(2)).
 */
static int make_between(int parent, const char *name, const struct entry *entry) {
  struct place place = {.directory = parent};
  struct entry between = {.type = DIRECTORY_ENTRY, .mode = 0755, .uid = entry->uid, .gid = entry->gid};
  between.has = entry->has & HAS_GROUP;
  if (fstat(parent, &place.seen) < 0) return -1;
  complete_entry(&place, name, &between);
  return make_entry(&place, name, &between, NULL);
}

/* Creates the missing parent directories of an entry. */
static int make_parents(struct tree *tree, char *path, const struct entry *entry) {
  for (char *slash = path; *slash != '\0';) {
    slash = strchrnul(slash + 1, '/');
    char end = *slash;
    *slash = '\0';
    int fd = within(tree, path, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT) {
      char *name = strrchr(path, '/');
      if (name != NULL) *name = '\0';
      int parent = within(tree, name == NULL ? "" : path, O_PATH | O_DIRECTORY);
      if (name != NULL) *name = '/';
      int made = parent < 0 ? -1 : make_between(parent, name == NULL ? path : name + 1, entry);
      close_keep_errno(parent);
      if (made != 0 && errno != EEXIST) return -1;
      fd = within(tree, path, O_PATH | O_DIRECTORY);
    }
    if (fd < 0) return -1;
    close(fd);
    *slash = end;
  }
  return 0;
}

/*
 * Syncs the file system of the last entry, except if it is the file system of `root` or `synced`, which the caller
 * syncs at the end. The entry is on another file system, for example, if its path leads through a symbolic link.
 */
static int sync_elsewhere(const struct tree *tree) {
  struct stat root, synced;
  const struct place *place = &tree->place;
  if (place->directory < 0) return 0;
  if (fstat(tree->root, &root) < 0 || fstat(tree->synced, &synced) < 0) return -1;
  if (root.st_dev == place->seen.st_dev || synced.st_dev == place->seen.st_dev) return 0;
  int fd = openat(place->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int result = fd < 0 ? -1 : syncfs(fd);
  close_keep_errno(fd);
  return result;
}

static void leave(struct tree *tree) {
  if ((tree->flags & SYNC) != 0 && sync_elsewhere(tree) < 0) tree->error = errno;
  if (tree->place.directory >= 0) close(tree->place.directory);
  tree->place.directory = -1;
}

/*
 * Opens the directory of an entry, and keeps it open for the next entry. Returns the entry's name, or NULL with errno.
 */
static const char *enter(struct tree *tree, const char *path, const struct entry *entry) {
  const char *slash = strrchr(path, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - path);
  const char *name = slash == NULL ? path : slash + 1;
  if (name[0] == '\0' || is_dots(name) || length >= PATH_MAX) {
    errno = length >= PATH_MAX ? ENAMETOOLONG : EINVAL;
    return NULL;
  }
  if (tree->place.directory >= 0 && strncmp(tree->path, path, length) == 0 && tree->path[length] == '\0') return name;
  leave(tree);
  memcpy(tree->path, path, length);
  tree->path[length] = '\0';
  int fd = within(tree, tree->path, O_PATH | O_DIRECTORY);
  if (fd < 0 && errno == ENOENT && length > 0 && make_parents(tree, tree->path, entry) == 0)
    fd = within(tree, tree->path, O_PATH | O_DIRECTORY);
  /*
   * If a link leads outside the root, `within` fails with ENOENT, because it looks for the target inside the root. The
   * true reason is EXDEV, with which `beneath` fails.
   */
  if (fd < 0 && errno == ENOENT) fd = beneath(tree, tree->path, O_PATH | O_DIRECTORY);
  dev_t last = tree->place.seen.st_dev;
  tree->place.directory = fd;
  if (fd < 0 || fstat(fd, &tree->place.seen) < 0) return NULL;
  if (tree->place.seen.st_dev != last) tree->place.kind = UNKNOWN;
  return name;
}

/*
 * Creates a file. At first assumes that its name is free, because most names are. If the name is taken, fills in the
 * unspecified attributes again, now from the existing file, and then replaces that file.
 */
static int put_file(struct tree *tree, const char *name, const struct entry *given, const char *data) {
  struct entry entry = *given;
  struct place *place = &tree->place, free_name = *place;
  bool tries_free = place->overwrites && !tree->replaces && place->kind == UNNAMED;
  free_name.overwrites = false;
  complete_entry(tries_free ? &free_name : place, name, &entry);
  int fd = make_entry(place, name, &entry, data);
  if (fd < 0) return -1;
  free_name.kind = place->kind;
  int result = commit_entry(tries_free ? &free_name : place, name, &entry, fd, APPLY | NAME);
  if (result < 0 && tries_free && has_failed_at(PLACE_STEP, EEXIST)) {
    tree->replaces = true;
    entry = *given;
    complete_entry(place, name, &entry);
    result = commit_entry(place, name, &entry, fd, APPLY | NAME);
  }
  close_keep_errno(fd);
  if (result < 0 && place->kind == NAMED) drop_temporary(place);
  return result;
}

/*
 * Opens an existing directory. A symbolic link to a directory is accepted only if the entry permits it; otherwise the
 * error is ENOTDIR.
 */
static int open_directory(const struct tree *tree, const char *name, const struct entry *entry, const char *path) {
  int fd = openat(tree->place.directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 || errno != ENOTDIR || (entry->has & FOLLOWS_LINK) == 0) return fd;
  return within(tree, path, O_PATH | O_DIRECTORY);
}

static int put_directory(struct tree *tree, const char *name, struct entry *entry, const char *path) {
  /*
   * At first the directory is writable for its owner, so that its content can be created. A later record of type
   * ATTRIBUTES_ENTRY sets the final mode.
   */
  entry->mode |= 0700;
  if (make_entry(&tree->place, name, entry, NULL) == 0) return 0;
  if (errno != EEXIST) return -1;
  int fd = open_directory(tree, name, entry, path);
  if (fd < 0) return fail_with(EEXIST);
  close(fd);
  return 0;
}

/* The target of a hard link must be a regular file, and its path must be in the tree. */
static int put_hard_link(const struct tree *tree, const char *name, const char *target) {
  struct stat seen;
  int fd = within(tree, target, O_PATH | O_NOFOLLOW);
  if (fd < 0) return -1;
  int result = fstat(fd, &seen);
  if (result == 0 && !S_ISREG(seen.st_mode)) result = fail_with(EINVAL);
  const struct place *place = &tree->place;
  if (result == 0) result = place_in(fd, place->directory, name, place->overwrites ? place->temporary : "");
  close_keep_errno(fd);
  return result;
}

static int put_attributes(const struct tree *tree, const char *name, const struct entry *entry, const char *path) {
  /* Not opened with O_PATH, because changing the mode of an O_PATH descriptor requires Linux 6.6 or /proc. */
  int fd = openat(tree->place.directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) fd = open_directory(tree, name, entry, path);
  int result = fd < 0 ? -1 : set_attributes(fd, entry);
  close_keep_errno(fd);
  return result;
}

static int put(struct tree *tree, struct entry *entry, const char *path, const char *data) {
  const char *name = enter(tree, path, entry);
  if (name == NULL) return -1;
  if (entry->type == HARD_LINK_ENTRY) return put_hard_link(tree, name, data);
  if (entry->type == ATTRIBUTES_ENTRY) return put_attributes(tree, name, entry, path);
  if (entry->type == FILE_ENTRY) return put_file(tree, name, entry, data);
  complete_entry(&tree->place, name, entry);
  if (entry->type == DIRECTORY_ENTRY) return put_directory(tree, name, entry, path);
  return make_entry(&tree->place, name, entry, data);
}

int agent_write_entries(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  const struct argument *records = &args[1];
  struct tree tree = {.root = args[0].number, .flags = args[2].number, .synced = args[4].number};
  tree.place = (struct place){.directory = -1, .temporary = args[3].bytes, .overwrites = (tree.flags & OVERWRITE) != 0};
  int64_t until_ms = now_ms() + BATCH_MS;
  struct entry entry;
  const char *path, *data;
  size_t count = 0;
  answer->bytes = malloc(records->length / sizeof entry * sizeof(int32_t) + 1);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
  for (size_t at = 0; (count == 0 || now_ms() < until_ms) && read_record(records, at, &entry, &path, &data); count++) {
    at += sizeof entry + entry.path_bytes + entry.data_bytes;
    int32_t error = put(&tree, &entry, path, data) != 0 ? errno : 0;
    memcpy(answer->bytes + count * sizeof error, &error, sizeof error);
  }
  leave(&tree);
  answer->length = count * sizeof(int32_t);
  return tree.error == 0 ? 0 : fail_with(tree.error);
}

int agent_sync_file_system(struct argument *args) {
  return syncfs(args[0].number);
}

/*
 * Finds the start and end of the next data at or after an offset. If no data follows, both are the end of the file. A
 * small hole counts as data, because to send it as a hole costs as much as to send its zeros. If lseek(2) does not
 * support SEEK_DATA, all of the file counts as data.
 */
int agent_next_data(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  int fd = args[0].number;
  int64_t from = 0, data[2], until_ms = now_ms() + BATCH_MS;
  memcpy(&from, args[1].bytes, args[1].length == sizeof from ? sizeof from : 0);
  answer->bytes = malloc(sizeof data);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
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

/* Reads one file. Returns its size, or -1 with errno: EFBIG if it exceeds `room`. */
static int read_file(const struct tree *tree, const char *path, char *bytes, size_t room) {
  struct stat seen;
  int fd = beneath(tree, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  int result = fstat(fd, &seen);
  if (result == 0 && !S_ISREG(seen.st_mode)) result = fail_with(EINVAL);
  size_t filled = 0;
  while (result == 0) {
    /* Reading one more byte detects a file that has grown. */
    char over;
    ssize_t count = filled < room ? read(fd, bytes + filled, room - filled) : read(fd, &over, 1);
    if (count == 0) break;
    if (count < 0) result = errno == EINTR ? 0 : -1;
    else if (filled == room) result = fail_with(EFBIG);
    else filled += (size_t)count;
  }
  close_keep_errno(fd);
  return result < 0 ? -1 : (int)filled;
}

/*
 * Reads the entries at `paths`, which has a NUL after each path. Stops when the answer might have too little room for
 * the next file.
 */
int agent_read_entries(struct argument *args) {
  struct argument *answer = &args[ANSWER];
  const struct argument *paths = &args[1];
  const struct tree tree = {.root = args[0].number, .flags = args[2].number, .place.directory = -1};
  size_t each = (size_t)args[3].number, room = (size_t)args[4].number;
  int64_t until_ms = now_ms() + BATCH_MS;
  answer->bytes = malloc(room);
  if (answer->bytes == NULL) return fail_with(ENOMEM);
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
