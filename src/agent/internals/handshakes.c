/*
 * Callbacks that OpenSSL offers and Node does not set, at every context that Node makes; one writes to OpenSSL's own
 * memory. They bound what a client costs before its certificate is verified (docs/agent/security-model.md has the
 * figures). Where Node does not export what this calls, nothing is bounded, and the agent logs handshakes_unbounded.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "../native/addon/openssl_host.h"
#include "../native/addon/values.h"

#define BOUNDING(F)                       \
  F(CRYPTO_get_ex_new_index)              \
  F(ERR_clear_error)                      \
  F(ERR_new)                              \
  F(ERR_set_debug)                        \
  F(ERR_set_error)                        \
  F(SSL_CTX_ctrl)                         \
  F(SSL_CTX_set_cert_verify_callback)     \
  F(SSL_CTX_set_msg_callback)             \
  F(SSL_get_ex_data)                      \
  F(SSL_get_ex_data_X509_STORE_CTX_idx)   \
  F(SSL_get_shutdown)                     \
  F(SSL_is_server)                        \
  F(SSL_set_ex_data)                      \
  F(SSL_set_shutdown)                     \
  F(X509_STORE_CTX_get_error)             \
  F(X509_STORE_CTX_get_ex_data)           \
  F(X509_STORE_CTX_set_error)             \
  F(X509_STORE_CTX_set_verify_cb)         \
  F(X509_verify_cert)                     \
  F(X509_verify_cert_error_string)
CALLS_OF_OPENSSL(BOUNDING, can_bound)

/*
 * Most bytes of a client's certificates, which are read before they are verified. A KiB can cost a quarter of a
 * handshake, and so can each key. Two with keys and signatures of RSA-4096 and the usual extensions have 3.2 KiB.
 * OpenSSL's own limit is 100 KiB.
 */
#define CHAIN_BYTES (3 * 1024 + 256)
#define CHAIN_LINKS 5
/* Most records of a client before its certificate is verified. A handshake and the first request have about ten. */
#define UNKNOWN_RECORDS 128
/* Most KeyUpdates of a connection: one is due every 2^24 records (RFC 8446, 5.5), at the cost of 20 KB of data. */
#define KEY_UPDATES 128
/* Where a connection keeps the numbers of its records and KeyUpdates; NULL is 0. */
static int records_index, updates_index;
/* In place of the number of records: the client's certificate is verified. */
#define KNOWN ((uintptr_t)-1)

/* Node's own callback lets the verification go on after a failure, with every signature that the peer has made up. */
static int stop_at_first(int verified, X509_STORE_CTX *store) {
  (void)store;
  return verified;
}

/* OpenSSL answers a failure with an alert, before it uses the client's key: that may take milliseconds. */
static int verify(X509_STORE_CTX *store, void *unused) {
  (void)unused;
  SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  bool is_server = SSL_is_server(ssl);
  if (is_server) X509_STORE_CTX_set_verify_cb(store, stop_at_first);
  if (X509_verify_cert(store) > 0) {
    if (is_server) SSL_set_ex_data(ssl, records_index, (void *)KNOWN);
    return 1;
  }
  if (!is_server) return 0;
  int error = X509_STORE_CTX_get_error(store);
  /* For the log. */
  ERR_clear_error();
  ERR_raise_data(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, "%s", X509_verify_cert_error_string(error));
  /* Another authority of the same name: otherwise the alert would report a decryption error. */
  if (error == X509_V_ERR_CERT_SIGNATURE_FAILURE)
    X509_STORE_CTX_set_error(store, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
  return 0;
}

/* Nothing more is read, and Node destroys the connection for the error. */
static void end(SSL *ssl, int reason) {
  SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
  ERR_raise(ERR_LIB_SSL, reason);
}

static void count(SSL *ssl, int index, uintptr_t limit, int reason) {
  uintptr_t number = (uintptr_t)SSL_get_ex_data(ssl, index);
  if (number == KNOWN) return;
  SSL_set_ex_data(ssl, index, (void *)(number + 1));
  if (number >= limit) end(ssl, reason);
}

static size_t read24(const unsigned char *at) { return (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2]; }

/* Whether a Certificate message (RFC 8446, 4.4.2) that is well formed so far holds more certificates than it may. */
static bool is_long(const unsigned char *message, size_t length) {
  size_t at = 8, links = 0;
  if (length < at || message[4] != 0) return false;
  while (at + 3 <= length && links <= CHAIN_LINKS) {
    at += 3 + read24(message + at);
    if (at + 2 > length) break;
    at += 2 + ((size_t)message[at] << 8 | message[at + 1]);
    links++;
  }
  return links > CHAIN_LINKS;
}

/*
 * OpenSSL decodes every certificate, with its key, before it calls back about any. This is the only place before that.
 * It changes one byte of OpenSSL's message to a context length that cannot be, for which OpenSSL refuses the message.
 */
static void refuse_long_chain(unsigned char *message, size_t length) {
  if (!is_long(message, length)) return;
  ERR_clear_error();
  ERR_raise_data(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, "more than %d certificates", CHAIN_LINKS);
  message[4] = 1;
}

/* Called for every record and every message of a handshake (SSL_CTX_set_msg_callback(3)), in both directions. */
static void watch(int sent, int version, int type, const void *bytes, size_t length, SSL *ssl, void *unused) {
  (void)version, (void)unused;
  if (sent || length == 0) return;
  if (type == SSL3_RT_HEADER && SSL_is_server(ssl)) count(ssl, records_index, UNKNOWN_RECORDS, SSL_R_RECORD_TOO_SMALL);
  if (type != SSL3_RT_HANDSHAKE) return;
  unsigned char message = *(const unsigned char *)bytes;
  if (message == SSL3_MT_KEY_UPDATE) count(ssl, updates_index, KEY_UPDATES, SSL_R_TOO_MANY_KEY_UPDATES);
  if (message == SSL3_MT_CERTIFICATE && SSL_is_server(ssl)) refuse_long_chain((unsigned char *)bytes, length);
}

/* Runs as each context is made: CRYPTO_EX_new, whose parent is the context (CRYPTO_get_ex_new_index(3)). */
static void bound(void *context, void *unused, CRYPTO_EX_DATA *data, int index, long number, void *pointer) {
  (void)unused, (void)data, (void)index, (void)number, (void)pointer;
  SSL_CTX_set_max_cert_list(context, CHAIN_BYTES);
  SSL_CTX_set_cert_verify_callback(context, verify, NULL);
  SSL_CTX_set_msg_callback(context, watch);
}

long agent_bound_handshakes(void) {
  static bool done;
  if (!can_bound()) return refuse(ENOSYS);
  if (done) return 1;
  records_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  updates_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  int contexts = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_CTX, 0, NULL, bound, NULL, NULL);
  return done = records_index >= 0 && updates_index >= 0 && contexts >= 0;
}
