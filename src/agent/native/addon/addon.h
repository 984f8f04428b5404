/*
 * The agent's native addon: system calls that Node lacks. Each function makes one system call or does one small job,
 * and decides nothing itself. ../addon.ts documents what the functions do; comments in C explain how they do it.
 */
#ifndef AGENT_ADDON_H
#define AGENT_ADDON_H

#define NAPI_VERSION 9

#include <node_api.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Functions that take and return numbers: the name in JavaScript, the C function, and the number and list of its
 * parameters. On failure a function returns -1 and sets errno, and JavaScript gets the negated errno.
 */
#define AGENT_CALLS(F)                                                            \
  /* spawn.c */                                                                   \
  F("abortSpawn", agent_abort_spawn, 1, (int number))                             \
  /* processes.c */                                                               \
  F("peekEnd", agent_peek_end, 1, (pid_t pid))                                    \
  F("reap", agent_reap, 1, (pid_t pid))                                           \
  F("kill", agent_kill, 2, (pid_t pid, int signal))                               \
  F("killGroup", agent_kill_group, 2, (pid_t group, int signal))                  \
  F("signalProcess", agent_signal_process, 3, (pid_t pid, int start, int signal)) \
  F("openFilesLimitOf", agent_open_files_limit_of, 1, (pid_t pid))                \
  F("parentOf", agent_parent_of, 1, (pid_t pid))                                  \
  F("isAlive", agent_is_alive, 1, (pid_t pid))                                    \
  /* own_process.c */                                                             \
  F("forbidDumps", agent_forbid_dumps, 0, (void))                                 \
  F("seccompMode", agent_seccomp_mode, 0, (void))                                 \
  F("trimHeap", agent_trim_heap, 0, (void))                                       \
  F("exitNow", agent_exit_now, 1, (int status))                                   \
  F("probeClone3", agent_probe_clone3, 0, (void))                                 \
  F("probeCloseRange", agent_probe_close_range, 0, (void))                        \
  /* time_slice.c */                                                              \
  F("shortenSlice", agent_shorten_slice, 0, (void))                               \
  /* kernel.c */                                                                  \
  F("probeClockStep", agent_probe_clock_step, 0, (void))                          \
  F("reseedCrng", agent_reseed_crng, 1, (int fd))                                 \
  F("probeCreditEntropy", agent_probe_credit_entropy, 1, (int fd))                \
  /* descriptor.c */                                                              \
  F("duplicate", agent_duplicate, 1, (int fd))                                    \
  F("bytesAvailable", agent_bytes_available, 1, (int fd))                         \
  F("widenPipe", agent_widen_pipe, 2, (int fd, int size))                         \
  F("lock", agent_lock, 1, (int fd))                                              \
  F("sendDescriptor", agent_send_descriptor, 3, (int socket, int byte, int fd))   \
  /* sockets.c */                                                                 \
  F("connectPort", agent_connect_port, 2, (int family, int port))                 \
  F("connected", agent_connected, 1, (int fd))                                    \
  F("peerProcess", agent_peer_process, 1, (int fd))                               \
  F("unacknowledgedMs", agent_unacknowledged_ms, 1, (int fd))                     \
  F("endWriting", agent_end_writing, 1, (int fd))                                 \
  F("resetAtClose", agent_reset_at_close, 1, (int fd))                            \
  /* listeners.c */                                                               \
  F("listenPort", agent_listen_port, 1, (int port))                               \
  F("listenVsock", agent_listen_vsock, 1, (int port))                             \
  /* terminal.c */                                                                \
  F("resizeTerminal", agent_resize_terminal, 3, (int fd, int cols, int rows))     \
  F("signalForeground", agent_signal_foreground, 2, (int fd, int signal))         \
  F("terminalEofByte", agent_terminal_eof_byte, 1, (int fd))                      \
  /* page_cache.c */                                                              \
  F("dropFileCache", agent_drop_file_cache, 1, (int fd))                          \
  /* program_pages.c */                                                           \
  F("adviseCode", agent_advise_code, 1, (int advice))                             \
  /* watch.c */                                                                   \
  F("openInotify", agent_open_inotify, 0, (void))                                 \
  F("unwatch", agent_unwatch, 2, (int inotify, int watch))                        \
  /* ../../internals */                                                            \
  F("relaxCertificateChecks", agent_relax_certificate_checks, 0, (void))          \
  F("boundHandshakes", agent_bound_handshakes, 0, (void))                         \
  /* cgroup.c */                                                                  \
  F("mountCgroups", agent_mount_cgroups, 0, (void))

/*
 * Functions that take or return values other than numbers: the name in JavaScript and the C function, which converts
 * its result and errors itself.
 */
#define AGENT_FUNCTIONS(F)                                 \
  /* listeners.c */                                        \
  F("vsockPeer", agent_vsock_peer)                         \
  /* spawn.c */                                            \
  F("spawn", agent_spawn)                                  \
  /* processes.c */                                        \
  F("processRows", agent_process_rows)                     \
  F("processSessions", agent_process_sessions)             \
  /* usage.c */                                            \
  F("usedBy", agent_used_by)                               \
  F("usedIn", agent_used_in)                               \
  /* own_process.c */                                      \
  F("environ", agent_environ)                              \
  F("effectiveCapabilities", agent_effective_capabilities) \
  /* kernel.c */                                           \
  F("realtimeNs", agent_realtime_ns)                       \
  F("setRealtimeNs", agent_set_realtime_ns)                \
  F("creditEntropy", agent_credit_entropy)                 \
  F("makeCharacterDevice", agent_make_character_device)    \
  /* descriptor.c */                                       \
  F("read", agent_read)                                    \
  F("write", agent_write)                                  \
  F("hungUp", agent_hung_up)                               \
  /* terminal.c */                                         \
  F("openTerminal", agent_open_terminal)                   \
  /* openssl.c */                                          \
  F("reseedOpenssl", agent_reseed_openssl)                 \
  F("acceptsTlsMaterial", agent_accepts_tls_material)      \
  /* page_cache.c */                                       \
  F("readCached", agent_read_cached)                       \
  F("cachedState", agent_cached_state)                     \
  /* cgroup.c */                                           \
  F("openAt", agent_open_at)                               \
  F("makeDirectoryAt", agent_make_directory_at)                  \
  F("removeDirectoryAt", agent_remove_directory_at)              \
  F("directoriesIn", agent_directories_in)

/*
 * Functions that may block on a file system, so they run on libuv threads (file_job.h). Each line has the name in
 * JavaScript and the C function.
 */
#define AGENT_FILE_CALLS(F)                  \
  /* files.c */                              \
  F("openIn", agent_open_in)                 \
  F("moveIn", agent_move_in)                 \
  F("removeIn", agent_remove_in)             \
  F("targetOf", agent_target_of)             \
  F("timesOf", agent_times_of)               \
  /* directories.c */                            \
  F("entriesIn", agent_entries_in)           \
  F("removeEach", agent_remove_each)         \
  /* watch.c */                              \
  F("watchEach", agent_watch_each)           \
  /* entry.c */                              \
  F("makeEntry", agent_make_entry)           \
  F("commitEntry", agent_commit_entry)       \
  F("setAttributes", agent_set_attributes)   \
  /* tree.c */                               \
  F("writeEntries", agent_write_entries)     \
  F("readEntries", agent_read_entries)       \
  F("nextData", agent_next_data)             \
  F("syncFileSystem", agent_sync_file_system) \
  /* sockets.c */                            \
  F("connectPath", agent_connect_path)       \
  /* whole_files.c */                        \
  F("readFiles", agent_read_files)

/* Exported classes. */
#define AGENT_CLASSES(C)                                                         \
  C("FdWatch", agent_fd_watch_class) /* fd_watch.c */                            \
  C("BackgroundWriter", agent_background_writer_class) /* background_writer.c */

#define DECLARE_CALL(name, call, count, parameters) long call parameters;
#define DECLARE_FUNCTION(name, call) napi_value call(napi_env env, napi_callback_info info);
struct argument;
#define DECLARE_FILE_CALL(name, call) int call(struct argument *args);
#define DECLARE_CLASS(name, define) napi_value define(napi_env env);
AGENT_CALLS(DECLARE_CALL)
AGENT_FUNCTIONS(DECLARE_FUNCTION)
AGENT_FILE_CALLS(DECLARE_FILE_CALL)
AGENT_CLASSES(DECLARE_CLASS)

/*
 * Starts a detached thread with all signals blocked. Node's signal handlers must not run on it, and SIGTTOU must not
 * stop it when it writes to a terminal (stty tostop). Returns 0 or an errno.
 */
int start_thread(void *(*run)(void *), void *data, size_t stack_bytes);

#endif
