/*
 * Makes it hard to freeze a session, in one of these ways, for ever:
 * - beat: nothing but rounds
 * - bomb N: N processes, each of which makes the next one within minutes, and ends
 * - uring: requests that the kernel's own threads carry out for a process (io_uring)
 * - vfork: children that share their parent's memory while it waits for them
 * - ptrace: a process that is stepped through, instruction by instruction
 * - fuse DIR: a file system served from within, and a client that waits for it
 * - oom: takes more memory than there is, and again once the kernel has killed it
 * - write FILE: a line to a file, again and again
 * Each counts its rounds in memory under its name (beats.h), by an instruction of its own after each hard part. All
 * have a low priority and pause between rounds, so that the agent gets its turn on one emulated processor.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "beats.h"

#define MOST_LIFE_US 300000000
#define REST_US 5000
#define PIECE_BYTES (1 << 20)

static volatile uint64_t *rounds;

static void count_round(void) { __atomic_add_fetch(rounds, 1, __ATOMIC_RELAXED); }

static void say_up(void) {
  puts("up");
  fflush(stdout);
}

static _Noreturn void fail(const char *what) {
  perror(what);
  _exit(1);
}

/* The place of this name, or the first free one. */
static void find_place(const char *name) {
  int file = open(BEATS_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ftruncate(file, sizeof(struct beats)))
    fail(BEATS_FILE);
  struct beats *beats = mmap(NULL, sizeof *beats, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (beats == MAP_FAILED)
    fail("mmap");
  for (int i = 0; i < BEATS && rounds == NULL; i++) {
    if (beats->of[i].name[0] && strcmp(beats->of[i].name, name))
      continue;
    snprintf(beats->of[i].name, BEAT_NAME_BYTES, "%s", name);
    rounds = &beats->of[i].rounds;
  }
}

static _Noreturn void beat(void) {
  for (say_up();; count_round())
    usleep(REST_US);
}

static _Noreturn void bomb(int count) {
  signal(SIGCHLD, SIG_IGN);
  for (int i = 0; i < count; i++) {
    if (fork() != 0)
      continue;
    for (srand((unsigned)i);; count_round()) {
      usleep((useconds_t)(rand() % MOST_LIFE_US));
      if (fork() > 0)
        _exit(0);
    }
  }
  say_up();
  for (;;)
    pause();
}

/* One request at a time, carried out by a worker of the kernel. */
static _Noreturn void use_uring(void) {
  struct io_uring_params params = {0};
  int ends[2], ring = (int)syscall(SYS_io_uring_setup, 1, &params);
  if (ring < 0 || pipe(ends))
    fail("io_uring_setup");
  size_t ring_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
  char *queues = mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  struct io_uring_sqe *request =
      mmap(NULL, sizeof *request, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
  if (queues == MAP_FAILED || request == MAP_FAILED)
    fail("mmap of io_uring");
  unsigned *head = (unsigned *)(queues + params.cq_off.head), *tail = (unsigned *)(queues + params.sq_off.tail);
  char byte = 0, got;
  for (say_up();; count_round()) {
    *request = (struct io_uring_sqe){
        .opcode = IORING_OP_WRITE, .flags = IOSQE_ASYNC, .fd = ends[1], .addr = (uintptr_t)&byte, .len = 1};
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    long submitted;
    /* The freeze interrupts the wait like a signal: the request is submitted or not. */
    while ((submitted = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0)) < 0 && errno == EINTR)
      ;
    if (submitted < 0 || read(ends[0], &got, 1) != 1)
      fail("io_uring_enter");
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    usleep(REST_US);
  }
}

static _Noreturn void borrow(void) {
  for (say_up();; count_round()) {
    pid_t child = vfork();
    if (child == 0) {
      usleep(10 * REST_US);
      _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
      fail("vfork");
  }
}

static _Noreturn void step_through(void) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    for (;;)
      sched_yield();
  }
  for (say_up(); waitpid(child, &status, 0) == child && WIFSTOPPED(status); count_round()) {
    usleep(REST_US);
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
      break;
  }
  fail("ptrace");
}

static void look_for_ever(const char *directory) {
  char file[300];
  struct stat found;
  for (unsigned n = 0;; n++) {
    snprintf(file, sizeof file, "%s/file-%u", directory, n);
    if (stat(file, &found) == 0 || errno != ENOENT)
      fail(file);
    count_round();
  }
}

/* An empty file system, slow with each request, so that the client waits for it nearly always. */
static _Noreturn void serve(const char *directory) {
  static char taken[64 * 1024], options[100];
  int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
  mkdir(directory, 0755);
  if (device < 0 || mount("none", directory, "fuse", 0, options))
    fail("fuse");
  if (fork() == 0) {
    /* Otherwise the file system would live as long as its client, which waits for it unkillably. */
    close(device);
    look_for_ever(directory);
  }
  for (int count = 0;; count++) {
    ssize_t length = read(device, taken, sizeof taken);
    if (length < 0 && (errno == EINTR || errno == ENOENT))
      continue;
    if (length < 0)
      fail("read of /dev/fuse");
    struct fuse_in_header *request = (struct fuse_in_header *)taken;
    struct {
      struct fuse_out_header head;
      struct fuse_init_out init;
    } answer = {{.unique = request->unique, .error = -ENOENT, .len = sizeof answer.head},
                {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096}};
    if (request->opcode == FUSE_INTERRUPT || request->opcode == FUSE_FORGET || request->opcode == FUSE_BATCH_FORGET)
      continue;
    if (request->opcode == FUSE_INIT) {
      answer.head.error = 0;
      answer.head.len = sizeof answer;
    } else
      usleep(4 * REST_US);
    if (write(device, &answer, answer.head.len) < 0 && errno != ENOENT && errno != EINTR)
      fail("write to /dev/fuse");
    if (count == 1)
      say_up();
  }
}

static void set_oom_score(const char *score) {
  int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0 || write(file, score, strlen(score)) < 0)
    fail("oom_score_adj");
  close(file);
}

static _Noreturn void run_out_of_memory(void) {
  set_oom_score("-1000");
  for (say_up();; count_round()) {
    int status;
    pid_t child = fork();
    while (child == 0) {
      static int is_marked;
      if (!is_marked++)
        set_oom_score("0");
      char *memory = mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory != MAP_FAILED)
        memset(memory, 1, PIECE_BYTES);
      usleep(REST_US);
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      fail("no memory");
    usleep(20 * REST_US);
  }
}

static _Noreturn void write_for_ever(const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  for (say_up();; count_round()) {
    if (write(file, "line\n", 5) != 5)
      fail(path);
    usleep(4 * REST_US);
  }
}

int main(int count, char **args) {
  const char *what = count > 1 ? args[1] : "", *more = count > 2 ? args[2] : "";
  setpriority(PRIO_PROCESS, 0, 19);
  find_place(count > 3 ? args[3] : what);
  if (rounds == NULL)
    return 2;
  if (!strcmp(what, "beat"))
    beat();
  if (!strcmp(what, "bomb"))
    bomb(atoi(more));
  if (!strcmp(what, "uring"))
    use_uring();
  if (!strcmp(what, "vfork"))
    borrow();
  if (!strcmp(what, "ptrace"))
    step_through();
  if (!strcmp(what, "fuse"))
    serve(more);
  if (!strcmp(what, "oom"))
    run_out_of_memory();
  if (!strcmp(what, "write"))
    write_for_ever(more);
  return 2;
}
