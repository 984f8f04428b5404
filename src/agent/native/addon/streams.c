/* Opens both ends of a child's standard streams, on the thread that starts the child. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "spawn.h"

/*
 * The agent's end is non-blocking; the child's end is blocking, as programs expect. The two ends can differ, because
 * the ends of a pipe are separate file descriptions.
 */
static int open_pipe(int *agent_end, int *child_end, bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return -1;
  *agent_end = ends[we_read ? 0 : 1];
  *child_end = ends[we_read ? 1 : 0];
  return fcntl(*agent_end, F_SETFL, (we_read ? O_RDONLY : O_WRONLY) | O_NONBLOCK);
}

/*
 * Opens /dev/null. The image may have another file at this path; O_NONBLOCK prevents a FIFO from blocking the open.
 * Returns -1 if the file is not the null device, whose numbers are 1 and 3 (mem(4)).
 */
static int open_null_device(void) {
  struct stat state;
  int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &state) == 0 && S_ISCHR(state.st_mode) && state.st_rdev == makedev(1, 3)) return fd;
  close(fd);
  return -1;
}

/* Opens an empty input: the null device, or a pipe without a writer if the image lacks the device. */
static int open_empty_input(struct spawn_job *job) {
  int writer = -1;
  job->child_ends[0] = open_null_device();
  if (job->child_ends[0] >= 0) return 0;
  int result = open_pipe(&writer, &job->child_ends[0], false);
  if (writer >= 0) close(writer);
  return result;
}

static int open_outputs(struct spawn_job *job) {
  for (int i = 1; i < 3; i++)
    if (open_pipe(&job->agent_ends[i], &job->child_ends[i], true) < 0) return -1;
  return 0;
}

static int open_pipes(struct spawn_job *job) {
  int input = job->has_input ? open_pipe(&job->agent_ends[0], &job->child_ends[0], false) : open_empty_input(job);
  return input < 0 ? -1 : open_outputs(job);
}

/* Input and output of a terminal are closed at different times, so the agent has a descriptor for each. */
static int open_on_terminal(struct spawn_job *job) {
  int ends[2];
  if (open_terminal(job->cols, job->rows, ends) < 0) return -1;
  if (job->iutf8) set_utf8_input(ends[1]);
  job->agent_ends[1] = ends[0];
  job->child_ends[0] = job->child_ends[1] = job->child_ends[2] = ends[1];
  job->agent_ends[0] = fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
  return job->agent_ends[0] < 0 ? -1 : 0;
}

/*
 * Makes the child's user the owner of each stream that is a pipe or a terminal; otherwise the child could not open
 * /dev/stdout. Files and other devices keep their owner. Failures are ignored, because the streams work anyway.
 */
static void give_to_user(struct spawn_job *job) {
  struct stat state;
  for (int i = 0; i < 3; i++) {
    int fd = job->child_ends[i];
    if (fd < 0 || fstat(fd, &state) < 0 || state.st_uid == job->uid) continue;
    if (S_ISFIFO(state.st_mode) || isatty(fd)) (void)!fchown(fd, job->uid, (gid_t)-1);
  }
}

int open_streams(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    job->agent_ends[i] = -1;
    job->child_ends[i] = job->streams == STREAMS_INHERITED ? i : -1;
  }
  job->step = job->streams == STREAMS_TERMINAL ? "terminal" : "prepare";
  int result = job->streams == STREAMS_PIPES      ? open_pipes(job)
               : job->streams == STREAMS_TERMINAL ? open_on_terminal(job)
               : job->pipes_outputs               ? open_outputs(job)
                                                  : 0;
  if (result < 0) {
    job->error = errno;
    close_child_ends(job);
    close_agent_ends(job);
    return -1;
  }
  if (job->has_identity) give_to_user(job);
  return 0;
}

void close_child_ends(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    int fd = job->child_ends[i];
    bool is_inherited = job->streams == STREAMS_INHERITED && fd == i;
    /* The three ends of a terminal are the same descriptor, which must be closed only once. */
    if (!is_inherited && fd >= 0 && (i == 0 || fd != job->child_ends[i - 1])) close(fd);
  }
  for (int i = 0; i < 3; i++) job->child_ends[i] = -1;
}

void close_agent_ends(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    if (job->agent_ends[i] >= 0) close(job->agent_ends[i]);
    job->agent_ends[i] = -1;
  }
}
