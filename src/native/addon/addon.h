/*
 * The agent's native addon: what the kernel offers and Node does not. Each function does one system call or one job and
 * decides nothing. Failures are returned as negative errno values unless a comment says otherwise.
 */
#ifndef AGENT_ADDON_H
#define AGENT_ADDON_H

#define NAPI_VERSION 9

#include <node_api.h>

/* spawn.c */
napi_value agent_spawn(napi_env env, napi_callback_info info);
napi_value agent_abort_spawn(napi_env env, napi_callback_info info);

/* wait.c */
napi_value agent_peek_end(napi_env env, napi_callback_info info);
napi_value agent_reap(napi_env env, napi_callback_info info);

/* signal.c */
napi_value agent_kill(napi_env env, napi_callback_info info);
napi_value agent_kill_group(napi_env env, napi_callback_info info);
napi_value agent_signal_process(napi_env env, napi_callback_info info);

/* process_table.c */
napi_value agent_process_table(napi_env env, napi_callback_info info);

/* descriptor.c */
napi_value agent_pipe(napi_env env, napi_callback_info info);
napi_value agent_duplicate(napi_env env, napi_callback_info info);
napi_value agent_read(napi_env env, napi_callback_info info);
napi_value agent_read_cached(napi_env env, napi_callback_info info);
napi_value agent_write(napi_env env, napi_callback_info info);
napi_value agent_bytes_available(napi_env env, napi_callback_info info);
napi_value agent_hung_up(napi_env env, napi_callback_info info);

/* terminal.c */
napi_value agent_open_terminal(napi_env env, napi_callback_info info);
napi_value agent_resize_terminal(napi_env env, napi_callback_info info);
napi_value agent_terminal_eof_byte(napi_env env, napi_callback_info info);

/* environ.c */
napi_value agent_environ(napi_env env, napi_callback_info info);

/* clock.c */
napi_value agent_realtime_ns(napi_env env, napi_callback_info info);
napi_value agent_set_realtime_ns(napi_env env, napi_callback_info info);

/* heap.c */
napi_value agent_trim_heap(napi_env env, napi_callback_info info);

/* limit.c */
napi_value agent_open_files_limit_of(napi_env env, napi_callback_info info);

/* entropy.c */
napi_value agent_credit_entropy(napi_env env, napi_callback_info info);
napi_value agent_reseed_crng(napi_env env, napi_callback_info info);

/* device.c */
napi_value agent_make_character_device(napi_env env, napi_callback_info info);

/* openssl.c */
napi_value agent_reseed_openssl(napi_env env, napi_callback_info info);
napi_value agent_relax_certificate_checks(napi_env env, napi_callback_info info);

/* tls_material.c */
napi_value agent_accepts_tls_material(napi_env env, napi_callback_info info);

/* cached_state.c */
napi_value agent_cached_state(napi_env env, napi_callback_info info);

/* page_cache.c */
napi_value agent_drop_file_cache(napi_env env, napi_callback_info info);

/* cgroup.c */
napi_value agent_mount_cgroups(napi_env env, napi_callback_info info);
napi_value agent_open_at(napi_env env, napi_callback_info info);
napi_value agent_make_folder_at(napi_env env, napi_callback_info info);
napi_value agent_remove_folder_at(napi_env env, napi_callback_info info);
napi_value agent_names_in(napi_env env, napi_callback_info info);
napi_value agent_lock(napi_env env, napi_callback_info info);

/* send_descriptor.c */
napi_value agent_send_descriptor(napi_env env, napi_callback_info info);

/* privileges.c */
napi_value agent_effective_capabilities(napi_env env, napi_callback_info info);
napi_value agent_seccomp_mode(napi_env env, napi_callback_info info);

/* probe.c */
napi_value agent_probe_clock_step(napi_env env, napi_callback_info info);
napi_value agent_probe_credit_entropy(napi_env env, napi_callback_info info);
napi_value agent_probe_clone3(napi_env env, napi_callback_info info);
napi_value agent_probe_close_range(napi_env env, napi_callback_info info);

/* dumpable.c */
napi_value agent_forbid_dumps(napi_env env, napi_callback_info info);

/* exit.c */
napi_value agent_exit_now(napi_env env, napi_callback_info info);

/* files.c */
napi_value agent_open_in(napi_env env, napi_callback_info info);
napi_value agent_place_in(napi_env env, napi_callback_info info);
napi_value agent_move_in(napi_env env, napi_callback_info info);
napi_value agent_make_folder_in(napi_env env, napi_callback_info info);
napi_value agent_remove_in(napi_env env, napi_callback_info info);
napi_value agent_target_of(napi_env env, napi_callback_info info);

/* fd_watch.c: the class FdWatch. */
napi_value agent_fd_watch_class(napi_env env);

/* background_writer.c: the class BackgroundWriter. */
napi_value agent_background_writer_class(napi_env env);

/* summing_writer.c: the class SummingWriter. */
napi_value agent_summing_writer_class(napi_env env);

#endif
