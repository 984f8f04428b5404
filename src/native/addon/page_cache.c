#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "values.h"

/* dropFileCache(fd): drops the file's clean pages from the page cache, so that the next open reads the disk. */
napi_value agent_drop_file_cache(napi_env env, napi_callback_info info) {
  napi_value fd;
  get_arguments(env, info, 1, &fd);
  /* posix_fadvise(2) returns the errno instead of setting it. */
  return from_int(env, -posix_fadvise(to_int(env, fd), 0, 0, POSIX_FADV_DONTNEED));
}

/* Whether these are the pages that the kernel maps into every process, which belong to no file. */
static bool is_kernels_own(const struct dl_phdr_info *object) {
  unsigned long header = getauxval(AT_SYSINFO_EHDR);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type == PT_LOAD && object->dlpi_addr + object->dlpi_phdr[i].p_vaddr == header) return true;
  }
  return false;
}

static int advise_object(struct dl_phdr_info *object, size_t size, void *advice) {
  (void)size;
  if (is_kernels_own(object)) return 0;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) != 0) continue;
    uintptr_t start = (object->dlpi_addr + segment->p_vaddr) & ~(page - 1);
    uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz + page - 1) & ~(page - 1);
    if (madvise((void *)start, end - start, *(const int *)advice) < 0) return -errno;
  }
  return 0;
}

/*
 * adviseCode(advice): madvise(2) for what is mapped of the program and its libraries and never written: code and constants,
 * whose pages are the files' own. What is relocated lies in writable segments, and is left alone.
 */
napi_value agent_advise_code(napi_env env, napi_callback_info info) {
  napi_value arg;
  get_arguments(env, info, 1, &arg);
  int advice = to_int(env, arg);
  return from_int(env, dl_iterate_phdr(advise_object, &advice));
}
