#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/* Whether servers refuse expired certificates without OpenSSL's own check of times. */
bool checks_expiry(void);

#endif
