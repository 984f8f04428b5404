/* getrandom of the vDSO (Linux 6.11 and later), for programs without a C library that uses it. */
#ifndef GUEST_VDSO_H
#define GUEST_VDSO_H

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

/* Names of the kernel's vDSO differ by architecture. */
#ifdef __aarch64__
#define VDSO_GETRANDOM "__kernel_getrandom"
#else
#define VDSO_GETRANDOM "__vdso_getrandom"
#endif

/* include/uapi/linux/random.h, Linux 6.11. */
struct opaque_params {
  unsigned size, prot, flags, reserved[13];
};
typedef ssize_t vdso_getrandom(void *buffer, size_t length, unsigned flags, void *state, size_t state_length);

/* A thread's own state for drawing. */
struct vdso {
  vdso_getrandom *draw;
  void *state;
  size_t state_bytes;
};

/* The vDSO's symbol of that name, or NULL. Its tables are small: none has more than 64 entries. */
static void *vdso_symbol(const char *name) {
  char *base = (char *)getauxval(AT_SYSINFO_EHDR);
  if (!base)
    return NULL;
  Elf64_Ehdr *header = (Elf64_Ehdr *)base;
  Elf64_Phdr *program = (Elf64_Phdr *)(base + header->e_phoff);
  Elf64_Sym *symbols = NULL;
  const char *strings = NULL;
  unsigned count = 64;
  for (int i = 0; i < header->e_phnum; i++) {
    if (program[i].p_type != PT_DYNAMIC)
      continue;
    for (Elf64_Dyn *entry = (Elf64_Dyn *)(base + program[i].p_offset); entry->d_tag; entry++) {
      if (entry->d_tag == DT_SYMTAB)
        symbols = (Elf64_Sym *)(base + entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB)
        strings = base + entry->d_un.d_ptr;
      if (entry->d_tag == DT_HASH)
        count = ((unsigned *)(base + entry->d_un.d_ptr))[1];
    }
  }
  for (unsigned i = 0; symbols && strings && i < count; i++)
    if (symbols[i].st_shndx && !strcmp(strings + symbols[i].st_name, name))
      return base + symbols[i].st_value;
  return NULL;
}

/* For one thread; `draw` is NULL if the kernel has none. */
static struct vdso open_vdso(void) {
  struct opaque_params params = {0};
  struct vdso vdso = {.draw = (vdso_getrandom *)vdso_symbol(VDSO_GETRANDOM)};
  if (!vdso.draw || vdso.draw(NULL, 0, 0, &params, ~0UL))
    return (struct vdso){0};
  vdso.state_bytes = params.size;
  vdso.state = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), (int)params.prot, (int)params.flags, -1, 0);
  return vdso.state == MAP_FAILED ? (struct vdso){0} : vdso;
}

#endif
