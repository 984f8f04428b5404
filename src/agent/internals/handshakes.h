#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/*
 * Whether handshakes.c rejects expired client certificates. OpenSSL's own check of times may be turned off only if it
 * does.
 */
bool checks_expiry(void);

#endif
