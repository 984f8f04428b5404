#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/*
 * Whether handshakes.c itself rejects expired client certificates. Only then may OpenSSL's own check of certificate
 * times be turned off (verify_parameters.c).
 */
bool checks_expiry(void);

#endif
