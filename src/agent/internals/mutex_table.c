/*
 * Turns off the deadlock detection of V8's mutexes, which costs 2 ms at the start and 1 MiB of memory. This must happen
 * before the first mutex is created, so the launcher preloads the addon. If Node does not export the function, the
 * detection stays on.
 */

/* Abseil's SetMutexDeadlockDetectionMode, a C++ function that Node exports. Mode 0 turns detection off. */
__attribute__((weak)) void set_deadlock_detection(int mode) __asm__(
  "_ZN4absl29SetMutexDeadlockDetectionModeENS_15OnDeadlockCycleE");

__attribute__((constructor)) static void detect_no_deadlocks(void) {
  if (set_deadlock_detection) set_deadlock_detection(0);
}
