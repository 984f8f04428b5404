/*
 * The agent's native addon: what the kernel offers and Node does not. Each function does one system call or one job and
 * decides nothing. Failures are returned as negative errno values unless a comment says otherwise.
 */
#ifndef AGENT_ADDON_H
#define AGENT_ADDON_H

#define NAPI_VERSION 9

#include <node_api.h>

/* All functions that the addon exports, with their names in JavaScript, by file. */
#define AGENT_FUNCTIONS(F)                                    \
  /* spawn.c */                                               \
  F("spawn", agent_spawn)                                     \
  F("abortSpawn", agent_abort_spawn)                          \
  /* wait.c */                                                \
  F("peekEnd", agent_peek_end)                                \
  F("reap", agent_reap)                                       \
  /* signal.c */                                              \
  F("kill", agent_kill)                                       \
  F("killGroup", agent_kill_group)                            \
  F("signalProcess", agent_signal_process)                    \
  /* process_table.c */                                       \
  F("processTable", agent_process_table)                      \
  /* descriptor.c */                                          \
  F("duplicate", agent_duplicate)                             \
  F("read", agent_read)                                       \
  F("readCached", agent_read_cached)                          \
  F("write", agent_write)                                     \
  F("bytesAvailable", agent_bytes_available)                  \
  F("hungUp", agent_hung_up)                                  \
  /* terminal.c */                                            \
  F("openTerminal", agent_open_terminal)                      \
  F("resizeTerminal", agent_resize_terminal)                  \
  F("terminalEofByte", agent_terminal_eof_byte)               \
  /* environ.c */                                             \
  F("environ", agent_environ)                                 \
  /* clock.c */                                               \
  F("realtimeNs", agent_realtime_ns)                          \
  F("setRealtimeNs", agent_set_realtime_ns)                   \
  /* heap.c */                                                \
  F("trimHeap", agent_trim_heap)                              \
  /* limit.c */                                               \
  F("openFilesLimitOf", agent_open_files_limit_of)            \
  /* entropy.c */                                             \
  F("creditEntropy", agent_credit_entropy)                    \
  F("reseedCrng", agent_reseed_crng)                          \
  /* device.c */                                              \
  F("makeCharacterDevice", agent_make_character_device)       \
  /* openssl.c */                                             \
  F("reseedOpenssl", agent_reseed_openssl)                    \
  F("relaxCertificateChecks", agent_relax_certificate_checks) \
  /* tls_material.c */                                        \
  F("acceptsTlsMaterial", agent_accepts_tls_material)         \
  /* cached_state.c */                                        \
  F("cachedState", agent_cached_state)                        \
  /* page_cache.c */                                          \
  F("dropFileCache", agent_drop_file_cache)                   \
  F("adviseCode", agent_advise_code)                          \
  /* cgroup.c */                                              \
  F("mountCgroups", agent_mount_cgroups)                      \
  F("openAt", agent_open_at)                                  \
  F("makeFolderAt", agent_make_folder_at)                     \
  F("removeFolderAt", agent_remove_folder_at)                 \
  F("namesIn", agent_names_in)                                \
  F("lock", agent_lock)                                       \
  /* send_descriptor.c */                                     \
  F("sendDescriptor", agent_send_descriptor)                  \
  /* privileges.c */                                          \
  F("effectiveCapabilities", agent_effective_capabilities)    \
  F("seccompMode", agent_seccomp_mode)                        \
  /* probe.c */                                               \
  F("probeClockStep", agent_probe_clock_step)                 \
  F("probeCreditEntropy", agent_probe_credit_entropy)         \
  F("probeClone3", agent_probe_clone3)                        \
  F("probeCloseRange", agent_probe_close_range)               \
  /* dumpable.c */                                            \
  F("forbidDumps", agent_forbid_dumps)                        \
  /* exit.c */                                                \
  F("exitNow", agent_exit_now)                                \
  /* files.c */                                               \
  F("openIn", agent_open_in)                                  \
  F("placeIn", agent_place_in)                                \
  F("moveIn", agent_move_in)                                  \
  F("makeFolderIn", agent_make_folder_in)                     \
  F("removeIn", agent_remove_in)                              \
  F("targetOf", agent_target_of)

/* All classes that it exports. */
#define AGENT_CLASSES(C)                                                         \
  C("FdWatch", agent_fd_watch_class) /* fd_watch.c */                            \
  C("BackgroundWriter", agent_background_writer_class) /* background_writer.c */ \
  C("SummingWriter", agent_summing_writer_class) /* summing_writer.c */

#define DECLARE_FUNCTION(name, call) napi_value call(napi_env env, napi_callback_info info);
#define DECLARE_CLASS(name, define) napi_value define(napi_env env);
AGENT_FUNCTIONS(DECLARE_FUNCTION)
AGENT_CLASSES(DECLARE_CLASS)

#endif
