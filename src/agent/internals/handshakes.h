#ifndef AGENT_HANDSHAKES_H
#define AGENT_HANDSHAKES_H

#include <stdbool.h>

/* Whether servers reject expired certificates without OpenSSL's own time check. */
bool checks_expiry(void);

#endif
