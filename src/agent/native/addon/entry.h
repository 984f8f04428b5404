/*
 * Entries that are made: files, directories and links, from records that ../../files/entries/record.ts packs. Every call
 * that makes or changes an entry makes it with make_entry, and gives it its name with commit_entry.
 *
 *   make_entry    opens a new file without its name, with its content; makes a directory or a link with its attributes
 *   commit_entry  of a file: checks its size, sets owner, mode and time, syncs, and gives it its name
 */
#ifndef AGENT_ENTRY_H
#define AGENT_ENTRY_H

#include <sys/stat.h>

#include "file_job.h"

/* What an entry is to become. ATTRIBUTES: of a directory that is there. */
enum { FILE_ENTRY = 1, DIRECTORY_ENTRY, SYMLINK_ENTRY, HARD_LINK_ENTRY, ATTRIBUTES_ENTRY };

/*
 * What the record asks for. Without HAS_OWNER, HAS_GROUP and HAS_MODE a file takes what the file that it replaces has,
 * and any entry the group of a setgid directory; the record's own values are defaults then. PLAIN_MODE: the mode says
 * nothing about setuid, setgid and sticky bits, which a directory that is there keeps. FOLLOWS_LINK: a symbolic link to
 * a directory may stand for it.
 */
enum { HAS_MODIFIED = 1, HAS_GROUP = 2, HAS_OWNER = 4, HAS_MODE = 8, PLAIN_MODE = 16, FOLLOWS_LINK = 32 };

/* Before a path with its NUL, and the content, or a link's target with its NUL. */
struct entry {
  uint32_t path_bytes, data_bytes;
  uint32_t type, has;
  uint32_t mode, uid, gid, modified_ns;
  int64_t modified;
  /* Of a file, all of it: its content may follow later. */
  int64_t size;
};

/* Where a record's path and content are. False: it is malformed. */
bool read_record(const struct argument *records, size_t at, struct entry *entry, const char **path, const char **data);

/*
 * The steps of an entry's making, which a failure names in errno beside the errno itself. ../../files/threads/steps.ts.
 */
enum { CREATE_STEP = 1, WRITE_STEP, CHOWN_STEP, CHMOD_STEP, UTIME_STEP, SYNC_STEP, PLACE_STEP, SYNC_DIRECTORY_STEP };

/* Fails with errno at a step. */
int fail_at(int step);

/* A directory that entries are made in, and how. */
struct place {
  int directory;
  struct stat seen;
  /* A name that nobody else uses, for files that need one before they have their own; empty: none. */
  const char *temporary;
  /* Replace what has the name. */
  bool overwrites;
  /* Whether its file system has files without a name that can get one later. */
  enum { UNKNOWN, UNNAMED, NAMED } kind;
};

/* Fills in what the record does not ask for. */
void complete_entry(const struct place *place, const char *name, struct entry *entry);

/* Makes a completed entry. Returns the descriptor of a file, which has no name yet or the temporary one; else 0. */
int make_entry(struct place *place, const char *name, const struct entry *entry, const char *data);

/* Removes what has the temporary name; errno stays. */
void drop_temporary(const struct place *place);

/*
 * Stages of a commit: what happens before the name is given (SETTLE), the name (NAME), and syncs of both (SYNC_ENTRY).
 */
enum { SETTLE = 1, NAME = 2, SYNC_ENTRY = 4 };
int commit_entry(const struct place *place, const char *name, const struct entry *entry, int fd, int stages);

/* Sets owner, then mode (a change of owner clears setuid bits), then time of an open entry, as far as `has` says. */
int set_attributes(int fd, const struct entry *entry);

#endif
