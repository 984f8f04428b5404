/*
 * Node's own build looks for deadlocks among V8's mutexes: 2 ms of a start, and a table of 1 MiB that the first mutex
 * fills. So the launcher has the addon loaded with the program, and this is done before that. Later it does no harm; where
 * Node does not export the function, the table stays.
 */

/* Abseil's SetMutexDeadlockDetectionMode, which node exports as a C++ function; 0: no detection. */
__attribute__((weak)) void set_deadlock_detection(int mode) __asm__(
  "_ZN4absl29SetMutexDeadlockDetectionModeENS_15OnDeadlockCycleE");

__attribute__((constructor)) static void detect_no_deadlocks(void) {
  if (set_deadlock_detection) set_deadlock_detection(0);
}
