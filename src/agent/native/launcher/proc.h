#ifndef LAUNCHER_PROC_H
#define LAUNCHER_PROC_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Whether /proc is a procfs. The image may have an ordinary directory at this path. Its files must not be used: they
 * could contain wrong process ids, or be FIFOs, which block the open.
 */
bool has_proc(void);

/*
 * Opens /proc if it is a procfs. Otherwise mounts a procfs that has no path, which requires CAP_SYS_ADMIN and Linux
 * 5.2. Returns -1 if that fails too.
 */
int open_proc(void);

/* Reads the start of a small file as text. Returns its length, or -1 and an empty text if it cannot be read. */
ssize_t read_text(int directory, const char *path, char *text, size_t size);

#endif
