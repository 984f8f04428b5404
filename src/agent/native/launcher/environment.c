#include "environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"
#include "oom_score.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/*
 * Linux since 6.3 may require MFD_NOEXEC_SEAL (vm.memfd_noexec), so the first attempt has this flag. Earlier kernels
 * reject it with EINVAL, so the second attempt is without it.
 */
static int create_memory_file(void) {
  int file = memfd_create("environment", MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL)
    file = memfd_create("environment", MFD_ALLOW_SEALING);
  return file;
}

static void write_all(int file, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(file, bytes, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      fail("cannot write the environment to memory");
    bytes += written;
    length -= (size_t)written;
  }
}

int move_environment(char **environment) {
  int file = create_memory_file();
  if (file < 0)
    fail("cannot create a file in memory (memfd_create)");
  for (char **entry = environment; *entry != NULL; entry++)
    write_all(file, *entry, strlen(*entry) + 1);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    fail("cannot seal the environment");
  if (lseek(file, 0, SEEK_SET) < 0)
    fail("cannot rewind the environment");
  for (char **entry = environment; *entry != NULL; entry++)
    explicit_bzero(*entry, strlen(*entry));
  environment[0] = NULL;
  return file;
}

__attribute__((format(printf, 1, 2))) static char *entry_of(const char *format, ...) {
  char *entry = NULL;
  va_list values;
  va_start(values, format);
  if (vasprintf(&entry, format, values) < 0)
    fail("out of memory for the agent's environment");
  va_end(values);
  return entry;
}

char **agent_environment(const struct bundle *bundle, int environment, int channel, int container_score) {
  char *const entries[] = {
    entry_of("GUEST_AGENT_ENVIRON_FD=%d", environment),
    entry_of("GUEST_AGENT_CHANNEL_FD=%d", channel),
    entry_of("GUEST_AGENT_DIR=%s", bundle->directory),
    /* One malloc arena for all threads, to use less memory. */
    "MALLOC_ARENA_MAX=1",
    /*
     * OpenSSL gets an empty configuration file. By default, Node's OpenSSL would read /etc/ssl/openssl.cnf of the
     * image.
     */
    entry_of("OPENSSL_CONF=%s", bundle->openssl_config),
    /*
     * The agent must not trust the CA certificates of the image. So the paths of OpenSSL's CA certificates name the
     * empty configuration file, in which OpenSSL finds no certificate.
     */
    entry_of("SSL_CERT_FILE=%s", bundle->openssl_config),
    entry_of("SSL_CERT_DIR=%s", bundle->openssl_config),
    /* All times are in UTC; the image's time zone is not read. */
    "TZ=UTC",
    container_score == NO_OOM_SCORE ? NULL : entry_of("GUEST_AGENT_CONTAINER_OOM_SCORE_ADJ=%d", container_score),
    NULL,
  };
  char **copy = malloc(sizeof entries);
  if (copy == NULL)
    fail("out of memory for the agent's environment");
  memcpy(copy, entries, sizeof entries);
  return copy;
}
