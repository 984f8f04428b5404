/* TLS credentials, tried with Node's own OpenSSL. Its functions are declared here weakly: see openssl.c. */
#include <stdbool.h>

#include "values.h"

#define HOST __attribute__((weak))

typedef struct bio_st BIO;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct x509_st X509;
typedef int pem_password_cb(char *buffer, int size, int writing, void *context);

/* From openssl/ssl.h, err.h and pemerr.h. */
#define SSL_CTRL_CHAIN_CERT 89
#define ERR_LIB_PEM 9
#define PEM_R_NO_START_LINE 108
#define ERR_LIB_OF(error) ((error) >> 23 & 0xff)
#define ERR_REASON_OF(error) ((error) & 0x7fffff)

HOST BIO *BIO_new_mem_buf(const void *bytes, int length);
HOST int BIO_free(BIO *bio);
HOST X509 *PEM_read_bio_X509_AUX(BIO *bio, X509 **into, pem_password_cb *password, void *context);
HOST X509 *PEM_read_bio_X509(BIO *bio, X509 **into, pem_password_cb *password, void *context);
HOST EVP_PKEY *PEM_read_bio_PrivateKey(BIO *bio, EVP_PKEY **into, pem_password_cb *password, void *context);
HOST void X509_free(X509 *certificate);
HOST void EVP_PKEY_free(EVP_PKEY *key);
HOST const SSL_METHOD *TLS_server_method(void);
HOST SSL_CTX *SSL_CTX_new(const SSL_METHOD *method);
HOST void SSL_CTX_free(SSL_CTX *context);
HOST int SSL_CTX_use_certificate(SSL_CTX *context, X509 *certificate);
HOST int SSL_CTX_use_PrivateKey(SSL_CTX *context, EVP_PKEY *key);
HOST int SSL_CTX_check_private_key(const SSL_CTX *context);
HOST long SSL_CTX_ctrl(SSL_CTX *context, int command, long number, void *pointer);
HOST unsigned long ERR_peek_last_error(void);
HOST void ERR_clear_error(void);

static bool has_openssl(void) {
  return BIO_new_mem_buf && BIO_free && PEM_read_bio_X509_AUX && PEM_read_bio_X509 && PEM_read_bio_PrivateKey &&
         X509_free && EVP_PKEY_free && TLS_server_method && SSL_CTX_new && SSL_CTX_free && SSL_CTX_use_certificate &&
         SSL_CTX_use_PrivateKey && SSL_CTX_check_private_key && SSL_CTX_ctrl && ERR_peek_last_error &&
         ERR_clear_error;
}

/* Without this callback OpenSSL would ask for the passphrase of an encrypted key on the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *context) {
  (void)buffer, (void)size, (void)writing, (void)context;
  return -1;
}

/* True at the end of the certificates, false at one that is malformed. */
static bool at_end(void) {
  unsigned long error = ERR_peek_last_error();
  return ERR_LIB_OF(error) == ERR_LIB_PEM && ERR_REASON_OF(error) == PEM_R_NO_START_LINE;
}

static bool use_chain(SSL_CTX *context, BIO *pem) {
  X509 *certificate = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL);
  bool used = certificate != NULL && SSL_CTX_use_certificate(context, certificate) == 1;
  X509_free(certificate);
  while (used && (certificate = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL)) != NULL) {
    /* If this succeeds, the context frees the certificate. */
    used = SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 0, certificate) == 1;
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

static bool holds_certificates(SSL_CTX *context, BIO *pem) {
  (void)context;
  X509 *certificate;
  int count = 0;
  for (; (certificate = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL)) != NULL; count++)
    X509_free(certificate);
  return count > 0 && at_end();
}

static bool try_pem(napi_env env, napi_value bytes, SSL_CTX *context, bool (*use)(SSL_CTX *, BIO *)) {
  void *data = NULL;
  size_t length = 0;
  if (napi_get_buffer_info(env, bytes, &data, &length) != napi_ok || length > INT32_MAX) return false;
  BIO *pem = BIO_new_mem_buf(data, (int)length);
  bool used = pem != NULL && use(context, pem);
  BIO_free(pem);
  return used;
}

/*
 * acceptsTlsMaterial(cert, key, clientCa), each as PEM: true where a server can use the certificate, its chain and the
 * key, and clientCa holds authorities and nothing else. False also where Node exports no OpenSSL.
 */
napi_value agent_accepts_tls_material(napi_env env, napi_callback_info info) {
  napi_value args[3];
  if (!has_openssl()) return from_bool(env, false);
  get_arguments(env, info, 3, args);
  ERR_clear_error();
  SSL_CTX *context = SSL_CTX_new(TLS_server_method());
  bool accepted = context != NULL && try_pem(env, args[0], context, use_chain) &&
                  try_pem(env, args[1], context, use_key) && try_pem(env, args[2], context, holds_certificates);
  SSL_CTX_free(context);
  ERR_clear_error();
  return from_bool(env, accepted);
}
