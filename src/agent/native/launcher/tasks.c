#include "tasks.h"

#include <sys/wait.h>
#include <unistd.h>

int tasks_available(int wanted) {
  int ends[2], count = 0;
  pid_t tasks[TASKS_NEEDED];
  if (pipe(ends) < 0)
    return wanted;
  for (; count < wanted && count < TASKS_NEEDED; count++) {
    pid_t task = fork();
    if (task == 0) {
      /* Lives until the launcher closes its end. */
      char byte;
      close(ends[1]);
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    if (task < 0)
      break;
    tasks[count] = task;
  }
  close(ends[0]);
  close(ends[1]);
  for (int i = 0; i < count; i++)
    waitpid(tasks[i], NULL, 0);
  return count;
}
