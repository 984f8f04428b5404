#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process_table.h"
#include "values.h"

/* The name in parentheses may itself hold blanks and parentheses, so parse from the last one on (proc(5)). */
int read_process_row(int proc, const char *name, int32_t *row) {
  char path[300], text[1024];
  char state;
  unsigned long long start;
  snprintf(path, sizeof path, "%s/stat", name);
  int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char *rest = strrchr(text, ')');
  /* Fields 3 to 6, and 22. */
  const char *format = " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (rest == NULL || sscanf(rest + 1, format, &state, &row[1], &row[2], &row[3], &start) != 5) return 0;
  row[4] = state;
  row[5] = (int32_t)(start & INT32_MAX);
  return 1;
}

/* Appends every process of /proc to `rows`; the number of rows, or -1 with errno. */
static ssize_t read_rows(int32_t **rows) {
  size_t count = 0, room = 0;
  DIR *proc = opendir("/proc");
  if (proc == NULL) return -1;
  for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    if (count == room) {
      room = room * 2 + 64;
      int32_t *larger = realloc(*rows, room * COLUMNS * sizeof **rows);
      if (larger == NULL) {
        closedir(proc);
        errno = ENOMEM;
        return -1;
      }
      *rows = larger;
    }
    int32_t *row = *rows + count * COLUMNS;
    row[0] = atoi(entry->d_name);
    count += (size_t)read_process_row(dirfd(proc), entry->d_name, row);
  }
  closedir(proc);
  return (ssize_t)count;
}

/* processTable(): an Int32Array of rows, one a process. Takes some 5 us a process. */
napi_value agent_process_table(napi_env env, napi_callback_info info) {
  (void)info;
  int32_t *rows = NULL;
  void *bytes = NULL;
  napi_value buffer = NULL, table = NULL;
  ssize_t count = read_rows(&rows);
  if (count < 0) {
    int error = errno;
    free(rows);
    return from_int(env, -error);
  }
  size_t cells = (size_t)count * COLUMNS;
  napi_create_arraybuffer(env, cells * sizeof *rows, &bytes, &buffer);
  if (cells > 0) memcpy(bytes, rows, cells * sizeof *rows);
  free(rows);
  napi_create_typedarray(env, napi_int32_array, cells, buffer, 0, &table);
  return table;
}
