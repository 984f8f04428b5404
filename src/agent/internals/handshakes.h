#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/*
 * Whether handshakes.c rejects expired client certificates. If it does not, OpenSSL's own check of times must stay on.
 */
bool checks_expiry(void);

#endif
