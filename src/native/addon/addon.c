#include "addon.h"

static const struct {
  const char *name;
  napi_callback call;
} FUNCTIONS[] = {
    {"spawn", agent_spawn},
    {"abortSpawn", agent_abort_spawn},
    {"peekEnd", agent_peek_end},
    {"reap", agent_reap},
    {"kill", agent_kill},
    {"killGroup", agent_kill_group},
    {"signalProcess", agent_signal_process},
    {"processTable", agent_process_table},
    {"pipe", agent_pipe},
    {"duplicate", agent_duplicate},
    {"read", agent_read},
    {"readCached", agent_read_cached},
    {"write", agent_write},
    {"bytesAvailable", agent_bytes_available},
    {"hungUp", agent_hung_up},
    {"openTerminal", agent_open_terminal},
    {"resizeTerminal", agent_resize_terminal},
    {"terminalEofByte", agent_terminal_eof_byte},
    {"environ", agent_environ},
    {"realtimeNs", agent_realtime_ns},
    {"setRealtimeNs", agent_set_realtime_ns},
    {"creditEntropy", agent_credit_entropy},
    {"reseedCrng", agent_reseed_crng},
    {"makeCharacterDevice", agent_make_character_device},
    {"reseedOpenssl", agent_reseed_openssl},
    {"relaxCertificateChecks", agent_relax_certificate_checks},
    {"acceptsTlsMaterial", agent_accepts_tls_material},
    {"cachedState", agent_cached_state},
    {"dropFileCache", agent_drop_file_cache},
    {"openFilesLimitOf", agent_open_files_limit_of},
    {"mountCgroups", agent_mount_cgroups},
    {"openAt", agent_open_at},
    {"makeFolderAt", agent_make_folder_at},
    {"removeFolderAt", agent_remove_folder_at},
    {"namesIn", agent_names_in},
    {"lock", agent_lock},
    {"sendDescriptor", agent_send_descriptor},
    {"forbidDumps", agent_forbid_dumps},
    {"effectiveCapabilities", agent_effective_capabilities},
    {"seccompMode", agent_seccomp_mode},
    {"probeClockStep", agent_probe_clock_step},
    {"probeCreditEntropy", agent_probe_credit_entropy},
    {"probeClone3", agent_probe_clone3},
    {"probeCloseRange", agent_probe_close_range},
    {"openIn", agent_open_in},
    {"placeIn", agent_place_in},
    {"moveIn", agent_move_in},
    {"makeFolderIn", agent_make_folder_in},
    {"removeIn", agent_remove_in},
    {"targetOf", agent_target_of},
    {"trimHeap", agent_trim_heap},
    {"exitNow", agent_exit_now},
};

static const struct {
  const char *name;
  napi_value (*define)(napi_env env);
} CLASSES[] = {
    {"FdWatch", agent_fd_watch_class},
    {"BackgroundWriter", agent_background_writer_class},
    {"SummingWriter", agent_summing_writer_class},
};

NAPI_MODULE_INIT() {
  for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
    napi_value function = NULL;
    napi_create_function(env, FUNCTIONS[i].name, NAPI_AUTO_LENGTH, FUNCTIONS[i].call, NULL, &function);
    napi_set_named_property(env, exports, FUNCTIONS[i].name, function);
  }
  for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
    napi_set_named_property(env, exports, CLASSES[i].name, CLASSES[i].define(env));
  return exports;
}
