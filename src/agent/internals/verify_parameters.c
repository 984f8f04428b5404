/*
 * Changes how servers verify clients, by replacing the parameters in OpenSSL's table, which applies to the whole
 * process. With the new parameters, a certificate that is not valid yet is accepted, because a guest's clock may be
 * years behind until the first restore. The configured CA may also be an intermediate CA. If Node does not export
 * the functions of OpenSSL that this requires, OpenSSL's own checks apply, and the agent logs
 * certificate_times_enforced.
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
 * Makes OpenSSL accept partial chains and ignore the validity times of certificates. All other checks stay. Works
 * only if handshakes.c rejects expired certificates, because nothing else would do so; handshakes.c rejects them in
 * all contexts that are created after this call. Node's own option for partial chains, allowPartialTrustChain, has
 * no effect on a server.
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
