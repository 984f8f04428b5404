/*
 * Changes how OpenSSL verifies clients, for the whole process. Accepts certificates that are not valid yet, because a
 * guest's clock may be years behind until the first restore. Accepts an intermediate CA as the configured CA. If Node
 * does not export the OpenSSL functions for this, nothing changes, and the agent logs certificate_times_enforced.
 */
#include <openssl/x509_vfy.h>

#include "../native/addon/openssl_host.h"
#include "../native/addon/values.h"
#include "handshakes.h"

#define RELAXING(F)               \
  F(X509_VERIFY_PARAM_new)        \
  F(X509_VERIFY_PARAM_free)       \
  F(X509_VERIFY_PARAM_set1)       \
  F(X509_VERIFY_PARAM_set1_name)  \
  F(X509_VERIFY_PARAM_set_flags)  \
  F(X509_VERIFY_PARAM_add0_table) \
  F(X509_VERIFY_PARAM_lookup)
CALLS_OF_OPENSSL(RELAXING, can_relax)

/* Name of the parameters with which a server verifies clients. */
#define PARAMETERS "ssl_client"

/*
 * Makes OpenSSL accept partial chains and ignore the validity times of certificates. Afterwards only handshakes.c
 * rejects expired certificates, and only in contexts that are created after agent_bound_handshakes. So this function
 * fails with ENOSYS unless agent_bound_handshakes has succeeded before. Node's own option allowPartialTrustChain is not
 * used, because it has no effect on a server.
 */
long agent_relax_certificate_checks(void) {
  if (!can_relax() || !checks_expiry()) return fail_with(ENOSYS);
  const X509_VERIFY_PARAM *defaults = X509_VERIFY_PARAM_lookup(PARAMETERS);
  X509_VERIFY_PARAM *changed = X509_VERIFY_PARAM_new();
  bool done = defaults != NULL && changed != NULL && X509_VERIFY_PARAM_set1(changed, defaults) == 1 &&
              X509_VERIFY_PARAM_set1_name(changed, PARAMETERS) == 1 &&
              X509_VERIFY_PARAM_set_flags(changed, X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_PARTIAL_CHAIN) == 1 &&
              X509_VERIFY_PARAM_add0_table(changed) == 1;
  if (!done) X509_VERIFY_PARAM_free(changed);
  return done;
}
