#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "openssl_host.h"
#include "values.h"

#define RESEEDING(F)    \
  F(RAND_get0_primary) \
  F(EVP_RAND_reseed)
CALLS_OF_OPENSSL(RESEEDING, can_reseed)

/*
 * reseedOpenssl(additional): reseeds OpenSSL's primary generator from `additional` and from the kernel. The other
 * generators, two per thread, reseed from the primary generator at their next use.
 */
napi_value agent_reseed_openssl(napi_env env, napi_callback_info info) {
  napi_value arg;
  void *additional = NULL;
  size_t length = 0;
  if (!can_reseed()) return from_int(env, -ENOSYS);
  get_arguments(env, info, 1, &arg);
  if (napi_get_buffer_info(env, arg, &additional, &length) != napi_ok) return from_int(env, -EINVAL);
  EVP_RAND_CTX *primary = RAND_get0_primary(NULL);
  if (primary == NULL) return from_int(env, 0);
  return from_int(env, EVP_RAND_reseed(primary, 0, NULL, 0, additional, length) == 1);
}

#define TRYING(F)              \
  F(BIO_new_mem_buf)           \
  F(BIO_free)                  \
  F(PEM_read_bio_X509_AUX)     \
  F(PEM_read_bio_X509)         \
  F(PEM_read_bio_PrivateKey)   \
  F(X509_check_ca)             \
  F(X509_free)                 \
  F(EVP_PKEY_free)             \
  F(TLS_server_method)         \
  F(SSL_CTX_new)               \
  F(SSL_CTX_free)              \
  F(SSL_CTX_use_certificate)   \
  F(SSL_CTX_use_PrivateKey)    \
  F(SSL_CTX_check_private_key) \
  F(SSL_CTX_ctrl)              \
  F(ERR_peek_last_error)       \
  F(ERR_clear_error)
CALLS_OF_OPENSSL(TRYING, can_try)

/* Without this callback OpenSSL would ask on the terminal for the passphrase of an encrypted key. */
static int no_passphrase(char *buffer, int size, int writing, void *context) {
  (void)buffer, (void)size, (void)writing, (void)context;
  return -1;
}

/*
 * Call this after a certificate could not be read. Returns true if the reason is that the PEM text has no further
 * certificate, and false if the next certificate is malformed.
 */
static bool at_end(void) {
  unsigned long error = ERR_peek_last_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

static bool use_chain(SSL_CTX *context, BIO *pem) {
  X509 *certificate = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL);
  bool used = certificate != NULL && SSL_CTX_use_certificate(context, certificate) == 1;
  X509_free(certificate);
  while (used && (certificate = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL)) != NULL) {
    /* On success the context owns the certificate. */
    used = SSL_CTX_add0_chain_cert(context, certificate) == 1;
    if (!used) X509_free(certificate);
  }
  return used && at_end();
}

static bool use_key(SSL_CTX *context, BIO *pem) {
  EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL);
  bool used = key != NULL && SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
  EVP_PKEY_free(key);
  return used;
}

/* Whether the PEM contains only certificates and at least one CA. Without a CA, every client would be rejected. */
static bool holds_authorities(SSL_CTX *context, BIO *pem) {
  (void)context;
  X509 *certificate;
  int authorities = 0;
  while ((certificate = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL)) != NULL) {
    if (X509_check_ca(certificate) != 0) authorities++;
    X509_free(certificate);
  }
  return authorities > 0 && at_end();
}

static bool try_pem(napi_env env, napi_value bytes, SSL_CTX *context, bool (*use)(SSL_CTX *, BIO *)) {
  void *data = NULL;
  size_t length = 0;
  if (napi_get_buffer_info(env, bytes, &data, &length) != napi_ok || length > INT_MAX) return false;
  BIO *pem = BIO_new_mem_buf(data, (int)length);
  bool used = pem != NULL && use(context, pem);
  BIO_free(pem);
  return used;
}

/*
 * acceptsTlsMaterial(cert, key, clientCa): returns true if a server can use the certificate chain `cert` with the key,
 * and if `clientCa` consists of certificates, at least one of which is a CA. Loading node:crypto and node:tls for this
 * would delay the workload by 8 ms (docs/decisions/0013-start-up.md).
 */
napi_value agent_accepts_tls_material(napi_env env, napi_callback_info info) {
  napi_value args[3];
  if (!can_try()) return from_bool(env, false);
  get_arguments(env, info, 3, args);
  ERR_clear_error();
  SSL_CTX *context = SSL_CTX_new(TLS_server_method());
  bool accepted = context != NULL && try_pem(env, args[0], context, use_chain) &&
                  try_pem(env, args[1], context, use_key) && try_pem(env, args[2], context, holds_authorities);
  SSL_CTX_free(context);
  ERR_clear_error();
  return from_bool(env, accepted);
}
