#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509_vfy.h>

#include "openssl_host.h"
#include "values.h"

#define RESEEDING(F)    \
  F(RAND_get0_primary) \
  F(EVP_RAND_reseed)
CALLS_OF_OPENSSL(RESEEDING, can_reseed)

#define RELAXING(F)               \
  F(X509_VERIFY_PARAM_new)        \
  F(X509_VERIFY_PARAM_free)       \
  F(X509_VERIFY_PARAM_set1)       \
  F(X509_VERIFY_PARAM_set1_name)  \
  F(X509_VERIFY_PARAM_set_flags)  \
  F(X509_VERIFY_PARAM_add0_table) \
  F(X509_VERIFY_PARAM_lookup)
CALLS_OF_OPENSSL(RELAXING, can_relax)

/*
 * reseedOpenssl(additional): reseeds OpenSSL's primary generator from the kernel and from the given bytes. The others,
 * two a thread, reseed from it at their next use. 1: done; 0: it failed; -ENOSYS: no such functions.
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
  if (!can_relax()) return from_int(env, -ENOSYS);
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
