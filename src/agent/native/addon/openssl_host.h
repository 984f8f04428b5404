/*
 * Declares functions of Node's own OpenSSL, which the node executable exports. The functions are declared as weak
 * symbols, so that the addon can be loaded even if Node does not export them.
 */
#ifndef AGENT_OPENSSL_HOST_H
#define AGENT_OPENSSL_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define DECLARE_WEAK(name) extern __typeof__(name) name __attribute__((weak));
#define AND_THERE(name) &&(name) != NULL

/*
 * For a C file that calls OpenSSL: declares the functions that the macro LIST(F) of this file names. Also defines a
 * function `check`, which returns whether Node exports all of them.
 */
#define CALLS_OF_OPENSSL(LIST, check) \
  LIST(DECLARE_WEAK)                  \
  static bool check(void) { return true LIST(AND_THERE); }

#endif
