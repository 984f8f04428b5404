/*
 * V8 asks for each piece of its heap (256 KiB) at a random address. Then nearly each has page tables of its own, at
 * three levels, and a mapping of its own in the kernel. Without those wishes the kernel puts them side by side, below
 * the libraries, where the start of all is random: a restored guest touches 120 pages less. On a node that imports
 * another function, or where the addon is loaded later, V8's wishes stay.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the C library's mmap64, which node imports: found first, as the addon is loaded before that library. */
void *mmap64(void *wish, size_t length, int protection, int flags, int fd, off64_t offset) {
  if (fd < 0 && (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) wish = NULL;
  return (void *)syscall(SYS_mmap, wish, length, protection, flags, fd, offset);
}
