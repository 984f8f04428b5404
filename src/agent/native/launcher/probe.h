#ifndef LAUNCHER_PROBE_H
#define LAUNCHER_PROBE_H

/*
 * `guest-agent probe [--ready] [SOCKET]`: asks a running agent whether it is alive, or with --ready whether its
 * workload is ready. It starts no agent, so that a probe every second costs almost nothing. Returns the exit status: 0
 * yes, 1 no, 64 wrong arguments.
 */
int probe(int argc, char **argv);

#endif
