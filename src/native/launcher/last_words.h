#ifndef LAUNCHER_LAST_WORDS_H
#define LAUNCHER_LAST_WORDS_H

#include <stdbool.h>

/* What the agent wrote over its channel by the time it had ended. */
struct last_words {
  /* The agent left on purpose. If false it crashed, whatever its status. */
  bool farewell;
  /* The folder in which its commands' cgroups are; -1: there are none. */
  int cgroups;
};

struct last_words read_last_words(int channel);

#endif
