/*
 * OpenSSL's table of verification parameters, whose entry for servers is replaced for the whole process. A guest's
 * clock may be years behind until the first restore duties, and an authority may be an intermediate one. Where Node
 * does not export what this calls, OpenSSL's own checks stay, and the agent logs certificate_times_enforced.
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

/* The parameters by which a server verifies its clients. */
#define PARAMETERS "ssl_client"

/*
 * Only where handshakes.c refuses what has expired, as it also does for contexts made later. Node's own option for a
 * partial chain, allowPartialTrustChain, has no effect on a server. All other checks stay.
 */
long agent_relax_certificate_checks(void) {
  if (!can_relax() || !checks_expiry()) return refuse(ENOSYS);
  const X509_VERIFY_PARAM *defaults = X509_VERIFY_PARAM_lookup(PARAMETERS);
  X509_VERIFY_PARAM *changed = X509_VERIFY_PARAM_new();
  bool done = defaults != NULL && changed != NULL && X509_VERIFY_PARAM_set1(changed, defaults) == 1 &&
              X509_VERIFY_PARAM_set1_name(changed, PARAMETERS) == 1 &&
              X509_VERIFY_PARAM_set_flags(changed, X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_PARTIAL_CHAIN) == 1 &&
              X509_VERIFY_PARAM_add0_table(changed) == 1;
  if (!done) X509_VERIFY_PARAM_free(changed);
  return done;
}
