#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/*
 * Whether handshakes.c rejects expired client certificates. If not, verify_parameters.c must not turn off OpenSSL's own
 * check of certificate times.
 */
bool checks_expiry(void);

#endif
