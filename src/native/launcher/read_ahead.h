#ifndef LAUNCHER_READ_AHEAD_H
#define LAUNCHER_READ_AHEAD_H

#include "bundle.h"

/*
 * Asks the kernel to read what a start and the first calls need of the bundle's files, by the list beside them
 * (agent.pages), all at once and nothing else. Does not wait for the disk. Without a list, or where the kernel does not
 * do it, everything is read when it is needed, and much beside it.
 */
void read_ahead(const struct bundle *bundle);

#endif
