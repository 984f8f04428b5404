#ifndef AGENT_CLONE_H
#define AGENT_CLONE_H

#include <stddef.h>

/*
 * As clone(2) with CLONE_PARENT_SETTID, but the child begins its life in the cgroup of that directory. -1 with errno;
 * ENOSYS, EINVAL or E2BIG before Linux 5.7, ENOSYS or EPERM also where a seccomp filter forbids clone3.
 */
int clone_into_cgroup(int (*child)(void *), void *stack, size_t stack_bytes, int flags, void *arg, void *parent_tid,
                      int cgroup_fd);

#endif
