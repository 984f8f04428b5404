/*
 * Node's own OpenSSL, whose functions the node executable exports. They are declared here as weak symbols rather than
 * taken from OpenSSL's headers: where Node exports none of them the addon must still load, and say so.
 */
#include "values.h"

#define HOST __attribute__((weak))

typedef struct evp_rand_ctx_st EVP_RAND_CTX;
typedef struct X509_VERIFY_PARAM_st X509_VERIFY_PARAM;

/* From openssl/x509_vfy.h. */
#define X509_V_FLAG_PARTIAL_CHAIN 0x80000
#define X509_V_FLAG_NO_CHECK_TIME 0x200000

HOST EVP_RAND_CTX *RAND_get0_primary(void *library);
HOST int EVP_RAND_reseed(EVP_RAND_CTX *generator, int prediction_resistance, const unsigned char *entropy,
                         size_t entropy_length, const unsigned char *additional, size_t additional_length);
HOST X509_VERIFY_PARAM *X509_VERIFY_PARAM_new(void);
HOST void X509_VERIFY_PARAM_free(X509_VERIFY_PARAM *param);
HOST int X509_VERIFY_PARAM_set1(X509_VERIFY_PARAM *to, const X509_VERIFY_PARAM *from);
HOST int X509_VERIFY_PARAM_set1_name(X509_VERIFY_PARAM *param, const char *name);
HOST int X509_VERIFY_PARAM_set_flags(X509_VERIFY_PARAM *param, unsigned long flags);
HOST int X509_VERIFY_PARAM_add0_table(X509_VERIFY_PARAM *param);
HOST const X509_VERIFY_PARAM *X509_VERIFY_PARAM_lookup(const char *name);

/*
 * reseedOpenssl(additional): reseeds OpenSSL's primary generator from the kernel and from the given bytes. The others,
 * two a thread, reseed from it at their next use. 1: done; 0: it failed; -ENOSYS: no such functions.
 */
napi_value agent_reseed_openssl(napi_env env, napi_callback_info info) {
  napi_value arg;
  void *additional = NULL;
  size_t length = 0;
  if (RAND_get0_primary == NULL || EVP_RAND_reseed == NULL) return from_int(env, -ENOSYS);
  get_arguments(env, info, 1, &arg);
  if (napi_get_buffer_info(env, arg, &additional, &length) != napi_ok) return from_int(env, -EINVAL);
  EVP_RAND_CTX *primary = RAND_get0_primary(NULL);
  if (primary == NULL) return from_int(env, 0);
  return from_int(env, EVP_RAND_reseed(primary, 0, NULL, 0, additional, length) == 1);
}

/*
 * relaxCertificateChecks(name): from now on, verifying a chain with the default parameters of that name ("ssl_client": as
 * a server does) ignores the time and accepts a trusted intermediate authority as the chain's end. (Node's own option for
 * the latter, allowPartialTrustChain, has no effect on a server.) All other checks stay. 1: done; 0: it failed; -ENOSYS:
 * no such functions.
 */
napi_value agent_relax_certificate_checks(napi_env env, napi_callback_info info) {
  napi_value arg;
  char name[32];
  size_t length = 0;
  if (X509_VERIFY_PARAM_new == NULL || X509_VERIFY_PARAM_free == NULL || X509_VERIFY_PARAM_set1 == NULL ||
      X509_VERIFY_PARAM_set1_name == NULL || X509_VERIFY_PARAM_set_flags == NULL ||
      X509_VERIFY_PARAM_add0_table == NULL || X509_VERIFY_PARAM_lookup == NULL)
    return from_int(env, -ENOSYS);
  get_arguments(env, info, 1, &arg);
  napi_get_value_string_utf8(env, arg, name, sizeof name, &length);
  const X509_VERIFY_PARAM *defaults = X509_VERIFY_PARAM_lookup(name);
  X509_VERIFY_PARAM *changed = X509_VERIFY_PARAM_new();
  if (defaults == NULL || changed == NULL) {
    X509_VERIFY_PARAM_free(changed);
    return from_int(env, 0);
  }
  if (X509_VERIFY_PARAM_set1(changed, defaults) != 1 || X509_VERIFY_PARAM_set1_name(changed, name) != 1 ||
      X509_VERIFY_PARAM_set_flags(changed, X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_PARTIAL_CHAIN) != 1 ||
      X509_VERIFY_PARAM_add0_table(changed) != 1) {
    X509_VERIFY_PARAM_free(changed);
    return from_int(env, 0);
  }
  return from_int(env, 1);
}
