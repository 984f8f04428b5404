/*
 * Creates files, directories and links from records that ../../files/entries/record.ts packs.
 *
 *   make_entry    creates a directory, a link, or a file with its content but without a name.
 *   commit_entry  checks the size of a file, sets its owner, mode and time, syncs it, and assigns its name.
 */
#ifndef AGENT_ENTRY_H
#define AGENT_ENTRY_H

#include <sys/stat.h>

#include "file_job.h"

/* Type of an entry. ATTRIBUTES_ENTRY creates nothing: it sets the attributes of an existing directory. */
enum { FILE_ENTRY = 1, DIRECTORY_ENTRY, SYMLINK_ENTRY, HARD_LINK_ENTRY, ATTRIBUTES_ENTRY };

/*
 * Flags of `has`.
 * HAS_*: the record specifies this attribute. An owner, group or mode that it does not specify comes from:
 *   - the replaced file, if the entry is a file that replaces another;
 *   - the directory, for the group, if the directory has the setgid bit;
 *   - the default in the record, in all other cases.
 * PLAIN_MODE: the mode has only permission bits. An existing directory keeps its setuid, setgid and sticky bits.
 * FOLLOWS_LINK: a symbolic link to a directory is accepted as the directory.
 */
enum { HAS_MODIFIED = 1, HAS_GROUP = 2, HAS_OWNER = 4, HAS_MODE = 8, PLAIN_MODE = 16, FOLLOWS_LINK = 32 };

/*
 * Header of a record. The path follows, and then a file's content or a link's target. Path and target end with a NUL.
 */
struct entry {
  uint32_t path_bytes, data_bytes;
  uint32_t type, has;
  uint32_t mode, uid, gid, modified_ns;
  int64_t modified;
  /*
   * Size of the complete file. It may exceed `data_bytes`: the rest of the content is then written to the open file
   * later.
   */
  int64_t size;
};

/* Finds path and content in the record at `at`. Returns false if the record is malformed. */
bool read_record(const struct argument *records, size_t at, struct entry *entry, const char **path, const char **data);

/*
 * Steps of creating an entry. On failure, the upper bits of errno are the step, and the lower 16 bits the error
 * (../../files/threads/steps.ts).
 */
enum { CREATE_STEP = 1, WRITE_STEP, CHOWN_STEP, CHMOD_STEP, UTIME_STEP, SYNC_STEP, PLACE_STEP, SYNC_DIRECTORY_STEP };

/* Stores the number of the step that failed in the upper bits of errno. Returns -1. */
int fail_at(int step);
/* Whether fail_at has stored this step and this error in errno. */
bool has_failed_at(int step, int error);

/* The directory in which entries are created, and whether it allows files without a name. */
struct place {
  int directory;
  struct stat seen;
  /*
   * A unique temporary name, for file systems without unnamed files, and for replacing a file; empty if there is none.
   */
  const char *temporary;
  bool overwrites;
  /*
   * How new files are created: without a name, which they get later, or with a temporary name. Depends on the file
   * system.
   */
  enum { UNKNOWN, UNNAMED, NAMED } kind;
};

/* Fills in the attributes that the record does not specify. */
void complete_entry(const struct place *place, const char *name, struct entry *entry);

/*
 * Creates an entry. Call complete_entry first. Returns the descriptor of a new file, and 0 for any other entry. A new
 * file has no name or only the temporary name, until commit_entry sets its final name.
 */
int make_entry(struct place *place, const char *name, const struct entry *entry, const char *data);

/* Removes the temporary file and keeps errno. */
void drop_temporary(const struct place *place);

/*
 * Stages of a commit. APPLY: check the size and set the attributes. NAME: give the file its name. SYNC_ENTRY: also sync
 * the file or the directory.
 */
enum { APPLY = 1, NAME = 2, SYNC_ENTRY = 4 };
int commit_entry(const struct place *place, const char *name, const struct entry *entry, int fd, int stages);

/* Sets the attributes that `has` names. The owner is set before the mode, because chown(2) clears setuid bits. */
int set_attributes(int fd, const struct entry *entry);

#endif
