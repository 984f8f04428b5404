#include "clone.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * clone3, whose child has a stack of its own and so cannot return from a C function: it calls child(arg) and never comes
 * back. The C library offers no wrapper. The result is the process id or a negated errno.
 */
static long clone3(struct clone_args *request, int (*child)(void *), void *arg) {
#if defined(__x86_64__)
  long result;
  register int (*run)(void *) __asm__("r12") = child;
  register void *data __asm__("r13") = arg;
  __asm__ volatile("syscall\n\t"
                   "test %%rax, %%rax\n\t"
                   "jnz 1f\n\t"
                   "xor %%ebp, %%ebp\n\t"
                   "mov %%r13, %%rdi\n\t"
                   "call *%%r12\n\t"
                   "hlt\n"
                   "1:"
                   : "=a"(result)
                   : "a"((long)SYS_clone3), "D"(request), "S"(sizeof *request), "r"(run), "r"(data)
                   : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long number __asm__("x8") = SYS_clone3;
  register long result __asm__("x0") = (long)request;
  register long size __asm__("x1") = sizeof *request;
  register int (*run)(void *) __asm__("x10") = child;
  register void *data __asm__("x11") = arg;
  __asm__ volatile("svc #0\n\t"
                   "cbnz x0, 1f\n\t"
                   "mov x29, xzr\n\t"
                   "mov x0, x11\n\t"
                   "blr x10\n\t"
                   "brk #1\n"
                   "1:"
                   : "+r"(result)
                   : "r"(number), "r"(size), "r"(run), "r"(data)
                   : "memory", "cc");
  return result;
#else
  (void)request, (void)child, (void)arg;
  return -ENOSYS;
#endif
}

int clone_into_cgroup(int (*child)(void *), void *stack, size_t stack_bytes, int flags, void *arg, void *parent_tid,
                      int cgroup_fd) {
  struct clone_args request = {
      .flags = (uint64_t)(unsigned)flags | CLONE_PARENT_SETTID | CLONE_INTO_CGROUP,
      .parent_tid = (uintptr_t)parent_tid,
      .exit_signal = SIGCHLD,
      .stack = (uintptr_t)stack,
      .stack_size = stack_bytes,
      .cgroup = (uint64_t)(unsigned)cgroup_fd,
  };
  long result = clone3(&request, child, arg);
  if (result >= 0) return (int)result;
  errno = (int)-result;
  return -1;
}
