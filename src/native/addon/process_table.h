#ifndef AGENT_PROCESS_TABLE_H
#define AGENT_PROCESS_TABLE_H

#include <stdint.h>

/* Of a row: pid, parent, process group, session, state character, start time (ticks, modulo 2^31). */
enum { START_COLUMN = 5, COLUMNS = 6 };

/* Fills all columns but the pid from <name>/stat below an open folder. 1, or 0 when there is no such process. */
int read_process_row(int proc, const char *name, int32_t *row);

#endif
