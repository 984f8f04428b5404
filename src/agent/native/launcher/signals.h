#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Functions for all 64 signals. They use raw system calls, because those of the C library exclude the signals 32 and
 * 33, which a host may send, too.
 */
typedef uint64_t signal_mask;

#define ALL_SIGNALS (~(signal_mask)0)
#define NO_SIGNALS ((signal_mask)0)
#define ONLY(number) ((signal_mask)1 << ((number) - 1))

/* Blocks the signals in `blocked`, and unblocks all others. */
void block_signals(signal_mask blocked);

void restore_default(int number);

/* Ignores real-time signals in this process and after execve: their default action would kill Node. */
void ignore_real_time_signals(void);

/* Waits for a pending signal in `wanted`. Returns its number, or 0 after `timeout_ms` (negative: no timeout). */
int take_signal(signal_mask wanted, int timeout_ms, siginfo_t *info);

/* Whether a process sent the signal, for example with kill(2), and not the kernel. */
bool sent_by_process(const siginfo_t *info);

#endif
