#ifndef LAUNCHER_PROC_H
#define LAUNCHER_PROC_H

/*
 * A new descriptor of a real procfs, or -1: that of the image, or else one of the launcher's own, mounted nowhere, which
 * needs CAP_SYS_ADMIN and Linux 5.2. In an ordinary folder at /proc a file could name any process, or be a FIFO, which
 * blocks.
 */
int open_proc(void);

#endif
