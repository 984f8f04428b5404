#ifndef LAUNCHER_PROC_H
#define LAUNCHER_PROC_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the image's /proc is a procfs: an ordinary directory there could name any process, or have a FIFO. */
bool has_proc(void);

/*
 * A new descriptor of a real procfs, or -1: that of the image, or else one of the launcher's own, mounted nowhere,
 * which needs CAP_SYS_ADMIN and Linux 5.2.
 */
int open_proc(void);

/*
 * Reads the beginning of a small file below a directory as text. Its length; -1, with an empty text: it cannot be read.
 */
ssize_t read_text(int directory, const char *path, char *text, size_t size);

#endif
