/*
 * Node's own build looks for deadlocks among V8's mutexes: 2 ms of a start, and a table of 1 MiB that the first mutex
 * fills. The launcher has the addon loaded with the program, so that this runs before the first mutex; later it does no
 * harm. Where Node does not export the function, the table stays.
 */

/* Abseil's SetMutexDeadlockDetectionMode, which node exports as a C++ function; 0: no detection. */
__attribute__((weak)) void set_deadlock_detection(int mode) __asm__(
  "_ZN4absl29SetMutexDeadlockDetectionModeENS_15OnDeadlockCycleE");

__attribute__((constructor)) static void detect_no_deadlocks(void) {
  if (set_deadlock_detection) set_deadlock_detection(0);
}
