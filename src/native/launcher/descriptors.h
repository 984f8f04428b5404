#ifndef LAUNCHER_DESCRIPTORS_H
#define LAUNCHER_DESCRIPTORS_H

/* Puts a stream that is at its end where descriptors 0, 1 or 2 are closed: it drops what is written to it, or fails
 * with EPIPE in an image without /dev/null. */
void ensure_standard_streams(void);

/* Closes what the launcher inherited beyond the standard streams: nothing of it is for the agent or its children. */
void close_inherited_descriptors(void);

#endif
