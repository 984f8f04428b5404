#include "bundle.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "failure.h"
#include "proc.h"

#if defined(__x86_64__)
#define LOADER "ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define LOADER "ld-linux-aarch64.so.1"
#else
#error "the agent is built for x86-64 and aarch64"
#endif

/* Writes directory/name to `path`. Returns -1 if the result is too long. */
static int join(char *path, const char *directory, const char *name) {
  int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);
  return length >= 0 && length < PATH_MAX ? 0 : -1;
}

/*
 * Cuts the launcher's file name off `directory`, and fills in the other paths. Returns -1 if the directory does not
 * contain the agent.
 */
static int complete(struct bundle *bundle) {
  char *slash = strrchr(bundle->directory, '/');
  if (slash == NULL)
    return -1;
  *slash = '\0';
  if (join(bundle->program, bundle->directory, "agent.bin") < 0 ||
      join(bundle->addon, bundle->directory, "agent.node") < 0 ||
      join(bundle->loader, bundle->directory, "lib/" LOADER) < 0 ||
      join(bundle->libraries, bundle->directory, "lib") < 0 ||
      join(bundle->openssl_config, bundle->directory, "lib/openssl.cnf") < 0)
    return -1;
  /*
   * The addon is not preloaded if it is missing, because the loader would print an error. The same applies if its path
   * has white space, at which the loader would split the path.
   */
  if (access(bundle->addon, R_OK) < 0 || strpbrk(bundle->addon, " \t\n") != NULL)
    bundle->addon[0] = '\0';
  return access(bundle->program, F_OK);
}

/*
 * Finds the bundle by the path that was passed to execve(2). This path is tried first, because the substrate chose it,
 * and because it does not require /proc.
 */
static int find_by_exec_name(struct bundle *bundle) {
  const char *name = (const char *)getauxval(AT_EXECFN);
  return name != NULL && realpath(name, bundle->directory) != NULL ? complete(bundle) : -1;
}

static int find_by_proc(struct bundle *bundle) {
  if (!has_proc())
    return -1;
  ssize_t length = readlink("/proc/self/exe", bundle->directory, PATH_MAX - 1);
  if (length <= 0)
    return -1;
  bundle->directory[length] = '\0';
  return complete(bundle);
}

void find_bundle(struct bundle *bundle) {
  if (find_by_exec_name(bundle) < 0 && find_by_proc(bundle) < 0)
    fail("cannot find agent.bin in the directory of this executable; keep the files of the bundle together");
  /* In --library-path, ld.so(8) would split the path at ':' and ';', and expand tokens such as $ORIGIN. */
  if (strpbrk(bundle->libraries, ":;$") != NULL)
    fail_because(bundle->directory, "the directory's path must not contain ':', ';' or '$'; put the bundle elsewhere");
}

char **agent_command(const struct bundle *bundle, int argc, char **argv) {
  char *const prefix[] = {
    (char *)bundle->loader,
    "--inhibit-cache",
    "--library-path",
    (char *)bundle->libraries,
    "--preload",
    (char *)bundle->addon,
    "--argv0",
    argc > 0 ? argv[0] : "guest-agent",
    (char *)bundle->program,
  };
  size_t prefix_length = sizeof prefix / sizeof *prefix;
  size_t argument_count = argc > 0 ? (size_t)argc - 1 : 0;
  char **command = calloc(prefix_length + argument_count + 1, sizeof *command);
  if (command == NULL)
    fail("out of memory for the agent's command line");
  memcpy(command, prefix, sizeof prefix);
  if (argument_count > 0)
    memcpy(command + prefix_length, argv + 1, argument_count * sizeof *command);
  return command;
}

#define LIST "agent.pages"
/* Limit for the size of the file agent.pages: twice the largest size that the file has had so far. */
#define LIST_LIMIT_BYTES 32768
/* The list always counts in pages of this size, even if the kernel has larger pages. */
#define PAGE_BYTES 4096

/* Requests read-ahead of the pages in one line of the list. The line has page ranges in the form FIRST+COUNT. */
static void read_runs(int file, char *runs) {
  for (char *next = runs, *end; *next != '\0'; next = end) {
    unsigned long first = strtoul(next, &end, 10);
    if (end == next || *end != '+')
      return;
    unsigned long count = strtoul(end + 1, &end, 10);
    readahead(file, (off64_t)first * PAGE_BYTES, count * PAGE_BYTES);
  }
}

void read_ahead(const struct bundle *bundle) {
  static char list[LIST_LIMIT_BYTES];
  int directory = open(bundle->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), file = -1;
  read_text(directory, LIST, list, sizeof list);
  /* Format of the list: a line with a file name, then lines with page ranges of that file, such as "0+12 40+3". */
  for (char *rest = list, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (*line >= '0' && *line <= '9') {
      read_runs(file, line);
    } else if (*line != '\0') {
      close(file);
      file = openat(directory, line, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    }
  }
  close(file);
  close(directory);
}
