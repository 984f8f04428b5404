#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The kernel's 64 signals by raw calls: the C library hides 32 and 33, which a host may send all the same. */
typedef uint64_t signal_mask;

#define ALL_SIGNALS (~(signal_mask)0)
#define NO_SIGNALS ((signal_mask)0)
#define ONLY(number) ((signal_mask)1 << ((number) - 1))

/* Sets the signals that are blocked. */
void block_signals(signal_mask blocked);

/* Lets a signal do its default action. */
void restore_default(int number);

/* Makes this process, and what it executes, ignore the real-time signals: Node would die of them. */
void ignore_real_time_signals(void);

/* Takes the next pending signal of `wanted`: its number, or 0 when none came within `timeout_ms` (negative: waits). */
int take_signal(signal_mask wanted, int timeout_ms, siginfo_t *info);

/* Whether a process sent the signal, by kill(2) and its kin, rather than the kernel. */
bool sent_by_process(const siginfo_t *info);

#endif
