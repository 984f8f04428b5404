/*
 * Callbacks that OpenSSL offers and Node does not set, at every context that Node makes; one writes to OpenSSL's own
 * memory. They bound what a client costs before its certificate is verified (docs/agent/security-model.md has the
 * figures). Where Node does not export what this calls, nothing is bounded, and the agent logs handshakes_unbounded.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <time.h>

#include "../native/addon/openssl_host.h"
#include "../native/addon/values.h"
#include "handshakes.h"

#define BOUNDING(F)                       \
  F(ASN1_TIME_to_tm)                      \
  F(CRYPTO_get_ex_new_index)              \
  F(ERR_clear_error)                      \
  F(ERR_new)                              \
  F(ERR_set_debug)                        \
  F(ERR_set_error)                        \
  F(OPENSSL_sk_num)                       \
  F(OPENSSL_sk_value)                     \
  F(SSL_CTX_ctrl)                         \
  F(SSL_CTX_set_cert_verify_callback)     \
  F(SSL_CTX_set_msg_callback)             \
  F(SSL_get_ex_data)                      \
  F(SSL_get_ex_data_X509_STORE_CTX_idx)   \
  F(SSL_get_shutdown)                     \
  F(SSL_is_server)                        \
  F(SSL_set_ex_data)                      \
  F(SSL_set_shutdown)                     \
  F(X509_STORE_CTX_get0_chain)            \
  F(X509_STORE_CTX_get_error)             \
  F(X509_STORE_CTX_get_ex_data)           \
  F(X509_STORE_CTX_set_error)             \
  F(X509_STORE_CTX_set_verify_cb)         \
  F(X509_cmp_current_time)                \
  F(X509_get0_notAfter)                   \
  F(X509_verify_cert)                     \
  F(X509_verify_cert_error_string)
CALLS_OF_OPENSSL(BOUNDING, can_bound)

/*
 * Bounds of a client's certificates, which are read before they are verified. An element of DER can cost 1/1,000 of a
 * handshake, a key 1/6. Three certificates with keys and signatures of RSA-4096 have 4.4 to 5 KiB and 220 to 330
 * elements. OpenSSL's own limit is 100 KiB.
 */
#define CHAIN_BYTES (5 * 1024 + 512)
#define CHAIN_LINKS 4
#define CHAIN_ELEMENTS 400
#define DIGITS(number) #number
#define TEXT(macro) DIGITS(macro)

/* Tags of X.690. */
enum { OCTET_STRING = 0x04, CONSTRUCTED = 0x20, SEQUENCE = 0x30, SET = 0x31 };

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

/*
 * The first end of validity that has passed in the verified chain, its authority included; NULL: none has. OpenSSL does
 * not check times here (verify_parameters.c), because certificates that are not valid yet have to pass.
 */
static const ASN1_TIME *passed_end(X509_STORE_CTX *store) {
  const STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
  for (int link = 0; link < sk_X509_num(chain); link++) {
    const ASN1_TIME *end = X509_get0_notAfter(sk_X509_value(chain, link));
    if (X509_cmp_current_time(end) <= 0) return end;
  }
  return NULL;
}

/* For the log: Node reports OpenSSL's last error. */
static void say_why(const char *why) {
  ERR_clear_error();
  ERR_raise_data(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, "%s", why);
}

/* OpenSSL answers a failure with an alert, before it uses the client's key: that may take milliseconds. */
static int verify(X509_STORE_CTX *store, void *unused) {
  (void)unused;
  SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  if (!SSL_is_server(ssl)) return X509_verify_cert(store) > 0;
  X509_STORE_CTX_set_verify_cb(store, stop_at_first);
  if (X509_verify_cert(store) > 0) {
    const ASN1_TIME *end = passed_end(store);
    if (end == NULL) {
      SSL_set_ex_data(ssl, records_index, (void *)KNOWN);
      return 1;
    }
    char why[64] = "expired";
    struct tm at;
    if (ASN1_TIME_to_tm(end, &at)) strftime(why, sizeof why, "expired on %FT%TZ, by the guest's clock", &at);
    say_why(why);
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_HAS_EXPIRED);
    return 0;
  }
  int error = X509_STORE_CTX_get_error(store);
  say_why(X509_verify_cert_error_string(error));
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

/*
 * Elements (X.690) of a certificate, for each of which OpenSSL allocates, also those in the values of extensions, which
 * are octet strings. A certificate has to be DER (RFC 5280, 4.1): what is not counts as too much.
 */
static size_t elements_of(const unsigned char *at, const unsigned char *end) {
  /* End of the value that is being counted; `end`: none is. A length within it must not lead out of it. */
  const unsigned char *value_end = end;
  size_t elements = 0;
  for (; end - at > 1; elements++) {
    unsigned char tag = at[0], first = at[1], more = first & 0x80 ? first & 0x7f : 0;
    bool is_split_string = (tag & 0xe0) == CONSTRUCTED && tag != SEQUENCE && tag != SET;
    bool has_long_tag = (tag & 0x1f) == 0x1f, has_no_length = first == 0x80;
    if (is_split_string || has_long_tag || has_no_length || more > 2 || end - at < 2 + more) return SIZE_MAX;
    size_t length = more == 0 ? first : more == 1 ? at[2] : (size_t)at[2] << 8 | at[3];
    at += 2 + more;
    const unsigned char *next = length < (size_t)(end - at) ? at + length : end;
    if (tag == OCTET_STRING && value_end == end && at < next && *at == SEQUENCE) value_end = next;
    else if ((tag & CONSTRUCTED) == 0) at = next;
    if (at < value_end) continue;
    at = value_end;
    value_end = end;
  }
  return elements;
}

/* Why a Certificate message (RFC 8446, 4.4.2) costs more than it may; NULL: it does not, or is not well formed. */
static const char *excess(const unsigned char *message, size_t length) {
  size_t at = 8, links = 0, elements = 0;
  if (length < at || message[4] != 0) return NULL;
  while (at + 3 <= length) {
    if (++links > CHAIN_LINKS) return "more than " TEXT(CHAIN_LINKS) " certificates";
    size_t size = read24(message + at);
    at += 3;
    if (size + 2 > length - at) return NULL;
    size_t more = elements_of(message + at, message + at + size);
    if (more > CHAIN_ELEMENTS - elements) return "more than " TEXT(CHAIN_ELEMENTS) " elements of DER";
    elements += more;
    at += size;
    at += 2 + ((size_t)message[at] << 8 | message[at + 1]);
  }
  return NULL;
}

/*
 * OpenSSL decodes every certificate, with its key, before it calls back about any. This is the only place before that.
 * It changes one byte of OpenSSL's message to a context length that cannot be, for which OpenSSL refuses the message.
 */
static void refuse_costly_chain(unsigned char *message, size_t length) {
  const char *why = excess(message, length);
  if (why == NULL) return;
  say_why(why);
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
  if (message == SSL3_MT_CERTIFICATE && SSL_is_server(ssl)) refuse_costly_chain((unsigned char *)bytes, length);
}

/* Runs as each context is made: CRYPTO_EX_new, whose parent is the context (CRYPTO_get_ex_new_index(3)). */
static void bound(void *context, void *unused, CRYPTO_EX_DATA *data, int index, long number, void *pointer) {
  (void)unused, (void)data, (void)index, (void)number, (void)pointer;
  SSL_CTX_set_max_cert_list(context, CHAIN_BYTES);
  SSL_CTX_set_cert_verify_callback(context, verify, NULL);
  SSL_CTX_set_msg_callback(context, watch);
}

static bool done;

bool checks_expiry(void) { return done; }

long agent_bound_handshakes(void) {
  if (!can_bound()) return refuse(ENOSYS);
  if (done) return 1;
  records_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  updates_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  int contexts = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_CTX, 0, NULL, bound, NULL, NULL);
  return done = records_index >= 0 && updates_index >= 0 && contexts >= 0;
}
