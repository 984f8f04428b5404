/*
 * Limits the CPU time that a TLS client can cause before its certificate is verified (figures:
 * docs/agent/security-model.md). OpenSSL callbacks on every SSL_CTX enforce the limits. One callback writes to memory
 * of OpenSSL. If Node does not export the OpenSSL functions for these callbacks, the agent logs handshakes_unbounded.
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
 * Limits for the certificates that a client sends. OpenSSL parses all of them before it verifies any. OpenSSL's own
 * limit of 100 KiB is too high, because it permits many costly parts: one DER element can take a thousandth of the CPU
 * time of a handshake, and one public key a sixth. The limits here suffice for three RSA-4096 certificates, which need
 * at most 5 KiB and 330 elements.
 */
#define CHAIN_BYTES (5 * 1024 + 512)
#define CHAIN_LINKS 4
#define CHAIN_ELEMENTS 400
#define DIGITS(number) #number
#define TEXT(macro) DIGITS(macro)

/* Tags of DER (X.690). */
enum { OCTET_STRING = 0x04, CONSTRUCTED = 0x20, SEQUENCE = 0x30, SET = 0x31 };

/*
 * Largest number of TLS records that a client may send before its certificate is verified. A handshake with the first
 * request has about ten records.
 */
#define UNVERIFIED_RECORDS 128
/*
 * Largest number of KeyUpdates per connection. A client needs one every 2^24 records (RFC 8446, 5.5). Each takes as
 * much CPU time as 20 KB of data.
 */
#define KEY_UPDATES 128
/* Each connection (SSL) stores its counts of records and of KeyUpdates at these ex_data indexes. NULL means 0. */
static int records_index, updates_index;
/*
 * Value that is stored in place of a connection's count of records once the client's certificate is verified. From then
 * on its records are not counted.
 */
#define VERIFIED ((uintptr_t)-1)

/*
 * Verification callback that ends at the first failure. Node's own callback continues after a failure, so OpenSSL would
 * check all signatures of an invalid chain.
 */
static int stop_at_first_failure(int verified, X509_STORE_CTX *store) {
  (void)store;
  return verified;
}

/*
 * Returns the expiry time of the first expired certificate in the verified chain (including the CA), or NULL. OpenSSL's
 * own check of times is off (verify_parameters.c), because it would also reject certificates that are not valid yet.
 */
static const ASN1_TIME *first_expiry(X509_STORE_CTX *store) {
  const STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
  for (int link = 0; link < sk_X509_num(chain); link++) {
    const ASN1_TIME *end = X509_get0_notAfter(sk_X509_value(chain, link));
    if (X509_cmp_current_time(end) <= 0) return end;
  }
  return NULL;
}

/* Sets OpenSSL's last error, which Node reports and the agent logs. */
static void set_error_text(const char *why) {
  ERR_clear_error();
  ERR_raise_data(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, "%s", why);
}

/*
 * Verifies the client's certificate during the handshake. If the verification fails, OpenSSL sends an alert and
 * skips the check with the client's public key, which could take milliseconds.
 */
static int verify(X509_STORE_CTX *store, void *unused) {
  (void)unused;
  SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  if (!SSL_is_server(ssl)) return X509_verify_cert(store) > 0;
  X509_STORE_CTX_set_verify_cb(store, stop_at_first_failure);
  if (X509_verify_cert(store) > 0) {
    const ASN1_TIME *end = first_expiry(store);
    if (end == NULL) {
      SSL_set_ex_data(ssl, records_index, (void *)VERIFIED);
      return 1;
    }
    char why[64] = "expired";
    struct tm at;
    if (ASN1_TIME_to_tm(end, &at)) strftime(why, sizeof why, "expired on %FT%TZ, by the guest's clock", &at);
    set_error_text(why);
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_HAS_EXPIRED);
    return 0;
  }
  int error = X509_STORE_CTX_get_error(store);
  set_error_text(X509_verify_cert_error_string(error));
  /*
   * A signature failure means that the issuer has the CA's name but another key. OpenSSL would send the TLS alert
   * decrypt_error. The error that is set here makes OpenSSL send the alert unknown_ca instead.
   */
  if (error == X509_V_ERR_CERT_SIGNATURE_FAILURE)
    X509_STORE_CTX_set_error(store, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
  return 0;
}

/* Stops reading from the peer, and raises an OpenSSL error, which makes Node destroy the connection. */
static void disconnect(SSL *ssl, int reason) {
  SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
  ERR_raise(ERR_LIB_SSL, reason);
}

static void count(SSL *ssl, int index, uintptr_t limit, int reason) {
  uintptr_t number = (uintptr_t)SSL_get_ex_data(ssl, index);
  if (number == VERIFIED) return;
  SSL_set_ex_data(ssl, index, (void *)(number + 1));
  if (number >= limit) disconnect(ssl, reason);
}

static size_t read24(const unsigned char *at) { return (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2]; }

/*
 * Counts the DER elements of a certificate (X.690), also inside extension values, because OpenSSL allocates memory for
 * each. If the certificate is not DER (RFC 5280, 4.1), the result exceeds every limit.
 */
static size_t elements_of(const unsigned char *at, const unsigned char *end) {
  /* Address that no DER element may exceed: the end of the extension value that is being parsed, or else `end`. */
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

/*
 * Returns the limit that a Certificate message (RFC 8446, 4.4.2) exceeds; NULL if there is none, or if the message is
 * malformed.
 */
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
 * Rejects a Certificate message that exceeds a limit, before OpenSSL decodes the certificates. Only the message
 * callback runs that early, and it cannot return an error. So this function overwrites the length of
 * certificate_request_context in the message (RFC 8446, 4.4.2), which makes OpenSSL reject the message as malformed.
 */
static void reject_costly_chain(unsigned char *message, size_t length) {
  const char *why = excess(message, length);
  if (why == NULL) return;
  set_error_text(why);
  message[4] = 1;
}

/* Message callback for each record and handshake message in both directions (SSL_CTX_set_msg_callback(3)). */
static void watch(int sent, int version, int type, const void *bytes, size_t length, SSL *ssl, void *unused) {
  (void)version, (void)unused;
  if (sent || length == 0) return;
  if (type == SSL3_RT_HEADER && SSL_is_server(ssl))
    count(ssl, records_index, UNVERIFIED_RECORDS, SSL_R_RECORD_TOO_SMALL);
  if (type != SSL3_RT_HANDSHAKE) return;
  unsigned char message = *(const unsigned char *)bytes;
  if (message == SSL3_MT_KEY_UPDATE) count(ssl, updates_index, KEY_UPDATES, SSL_R_TOO_MANY_KEY_UPDATES);
  if (message == SSL3_MT_CERTIFICATE && SSL_is_server(ssl)) reject_costly_chain((unsigned char *)bytes, length);
}

/*
 * Runs when an SSL_CTX is created. It is a CRYPTO_EX_new callback, whose first argument is the new SSL_CTX
 * (CRYPTO_get_ex_new_index(3)).
 */
static void limit_context(void *context, void *unused, CRYPTO_EX_DATA *data, int index, long number, void *pointer) {
  (void)unused, (void)data, (void)index, (void)number, (void)pointer;
  SSL_CTX_set_max_cert_list(context, CHAIN_BYTES);
  SSL_CTX_set_cert_verify_callback(context, verify, NULL);
  SSL_CTX_set_msg_callback(context, watch);
}

static bool done;

bool checks_expiry(void) { return done; }

long agent_bound_handshakes(void) {
  if (!can_bound()) return fail_with(ENOSYS);
  if (done) return 1;
  records_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  updates_index = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, NULL, NULL, NULL, NULL);
  int contexts = CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_CTX, 0, NULL, limit_context, NULL, NULL);
  return done = records_index >= 0 && updates_index >= 0 && contexts >= 0;
}
