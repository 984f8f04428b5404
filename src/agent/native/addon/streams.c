/* Both sides of a child's standard streams, opened on the thread that starts it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "spawn.h"

/*
 * Our end does not block; the child's does, as programs expect of their standard streams. That is possible because the
 * two ends of a pipe, unlike those of a socketpair made with SOCK_NONBLOCK, are separate file descriptions.
 */
static int open_pipe(int *ours, int *theirs, bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return -1;
  *ours = ends[we_read ? 0 : 1];
  *theirs = ends[we_read ? 1 : 0];
  return fcntl(*ours, F_SETFL, (we_read ? O_RDONLY : O_WRONLY) | O_NONBLOCK);
}

/* The image may have anything at this path; a FIFO must not block us. -1: it is not the device (mem(4): 1, 3). */
static int open_null_device(void) {
  struct stat state;
  int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &state) == 0 && S_ISCHR(state.st_mode) && state.st_rdev == makedev(1, 3)) return fd;
  close(fd);
  return -1;
}

/* An empty input: the null device, or a pipe without a writer if the image has none. */
static int open_empty_input(struct spawn_job *job) {
  int writer = -1;
  job->theirs[0] = open_null_device();
  if (job->theirs[0] >= 0) return 0;
  int result = open_pipe(&writer, &job->theirs[0], false);
  if (writer >= 0) close(writer);
  return result;
}

static int open_outputs(struct spawn_job *job) {
  for (int i = 1; i < 3; i++)
    if (open_pipe(&job->ours[i], &job->theirs[i], true) < 0) return -1;
  return 0;
}

static int open_pipes(struct spawn_job *job) {
  int input = job->has_input ? open_pipe(&job->ours[0], &job->theirs[0], false) : open_empty_input(job);
  return input < 0 ? -1 : open_outputs(job);
}

/* The two directions end at different times, so each has a descriptor of its own. */
static int open_on_terminal(struct spawn_job *job) {
  int ends[2];
  if (open_terminal(job->cols, job->rows, ends) < 0) return -1;
  if (job->iutf8) set_utf8_input(ends[1]);
  job->ours[1] = ends[0];
  job->theirs[0] = job->theirs[1] = job->theirs[2] = ends[1];
  job->ours[0] = fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
  return job->ours[0] < 0 ? -1 : 0;
}

/*
 * Makes the child's user own the pipes and terminals among its streams. Without that it could not open /dev/stdout,
 * which checks the permissions of the pipe or terminal. Leaves files and devices alone. If it fails, the streams still
 * work.
 */
static void give_to_user(struct spawn_job *job) {
  struct stat state;
  for (int i = 0; i < 3; i++) {
    int fd = job->theirs[i];
    if (fd < 0 || fstat(fd, &state) < 0 || state.st_uid == job->uid) continue;
    if (S_ISFIFO(state.st_mode) || isatty(fd)) (void)!fchown(fd, job->uid, (gid_t)-1);
  }
}

int open_streams(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    job->ours[i] = -1;
    job->theirs[i] = job->streams == STREAMS_INHERITED ? i : -1;
  }
  job->step = job->streams == STREAMS_TERMINAL ? "terminal" : "prepare";
  int result = job->streams == STREAMS_PIPES      ? open_pipes(job)
               : job->streams == STREAMS_TERMINAL ? open_on_terminal(job)
               : job->pipes_outputs               ? open_outputs(job)
                                                  : 0;
  if (result < 0) {
    job->error = errno;
    close_their_streams(job);
    close_our_streams(job);
    return -1;
  }
  if (job->has_identity) give_to_user(job);
  return 0;
}

void close_their_streams(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    bool is_ours = job->streams == STREAMS_INHERITED && job->theirs[i] == i;
    /* A terminal's slave is all three. */
    if (!is_ours && job->theirs[i] >= 0 && (i == 0 || job->theirs[i] != job->theirs[i - 1])) close(job->theirs[i]);
  }
  for (int i = 0; i < 3; i++) job->theirs[i] = -1;
}

void close_our_streams(struct spawn_job *job) {
  for (int i = 0; i < 3; i++) {
    if (job->ours[i] >= 0) close(job->ours[i]);
    job->ours[i] = -1;
  }
}
