/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels read and write. Their files are compiled with -fsanitize=thread, not for its library
 * but for its hooks, which are here: every access that is not to a register calls one. Bytes of
 * device memory are marked in a shadow of the region; when the launch is over, the marks become the
 * ranges that order.cpp checks. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <algorithm>
#include <cstring>
#include <link.h>
#include <sys/mman.h>

namespace fake
{

namespace
{

enum Mark : guint8
{
  LIVE = 1, /* allocated, on a device */
  READ = 2,
  WRITTEN = 4
};

guint8 *shadow;            /* a mark per byte of the region */
guint8 *is_page_used;      /* by the kernel that runs */
std::vector<size_t> pages; /* the pages that it uses */
guintptr region, n_bytes;  /* of devices and pinned memory */
guintptr image, image_end; /* this program's own variables and constants */
guintptr stacks, stacks_end;
guintptr closure, closure_end;

/* Whether this thread runs a thread of a kernel: launchers are compiled with the hooks too, and do
 * not count. */
thread_local bool is_running;

void *
reserve (size_t bytes)
{
  void *memory = mmap (nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

  if (memory == MAP_FAILED)
    g_error ("no address space for fake devices");
  return memory;
}

int
note_image (struct dl_phdr_info *info, size_t bytes, void *data)
{
  image = G_MAXSIZE;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      {
        guintptr begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        image = std::min (image, begin);
        image_end = std::max (image_end, begin + info->dlpi_phdr[i].p_memsz);
      }
  return 1; /* the program is the first */
}

std::string
describe_access (guintptr at, size_t bytes, bool is_write)
{
  const Allocation *allocation = find ((const void *)at);
  std::string what = is_write ? "writes " : "reads ";

  if (allocation == nullptr)
    what += std::to_string (bytes) + " bytes of memory that is not a device's";
  else if (allocation->is_freed)
    what
        += std::to_string (bytes) + " bytes of freed memory " + std::to_string (allocation->number);
  else
    {
      size_t from = at - (guintptr)allocation->at;

      what += bytes_of (*allocation, from, from + bytes)
              + (allocation->part == HOST ? ", not a device's" : ": beyond its end");
    }
  return what;
}

/* Strings must be freed before the kernel is stopped, as its stack is never unwound. */
G_NORETURN void
refuse (guintptr at, size_t bytes, bool is_write)
{
  is_running = false;
  blame_kernel (describe_access (at, bytes, is_write));
  stop_kernel ();
}

void
mark_page (size_t page)
{
  if (!is_page_used[page])
    {
      is_page_used[page] = 1;
      pages.push_back (page);
    }
}

void
mark (guintptr at, size_t bytes, bool is_write)
{
  size_t from = at - region;

  mark_page (from / PAGE);
  mark_page ((from + bytes - 1) / PAGE);
  races_use ((const void *)at, bytes, is_write);
  for (size_t i = from; i < from + bytes; i++)
    {
      if (!(shadow[i] & LIVE))
        refuse (at, bytes, is_write);
      shadow[i] |= is_write ? WRITTEN : READ;
    }
}

/* The same for at most 8 bytes, whose number the compiler knows: the marks of all of them are read
 * and written as one word. */
template <size_t bytes>
inline void
mark_word (guintptr at, bool is_write)
{
  const guint64 each = 0x0101010101010101u >> (64 - 8 * bytes);
  size_t from = at - region;
  guint64 marks = 0;

  mark_page (from / PAGE);
  mark_page ((from + bytes - 1) / PAGE);
  memcpy (&marks, shadow + from, bytes);
  if ((marks & each * LIVE) != each * LIVE)
    refuse (at, bytes, is_write);
  marks |= each * (is_write ? WRITTEN : READ);
  memcpy (shadow + from, &marks, bytes);
}

bool
is_within (guintptr at, guintptr begin, guintptr end)
{
  return at >= begin && at < end;
}

inline void
use (const volatile void *memory, size_t bytes, bool is_write)
{
  guintptr at = (guintptr)memory;

  if (!is_running || bytes == 0)
    return;
  if (at - region < n_bytes)
    mark (at, bytes, is_write);
  else if (is_within (at, image, image_end) || is_within (at, stacks, stacks_end))
    races_use ((const void *)at, bytes, is_write); /* shared memory is there */
  else if (!is_within (at, closure, closure_end))
    refuse (at, bytes, is_write);
}

G_NORETURN void
refuse_alignment (size_t bytes, bool is_write)
{
  is_running = false;
  blame_kernel ((is_write ? "writes " : "reads ") + std::to_string (bytes)
                + " bytes at once, at no multiple of that");
  stop_kernel ();
}

/* An access of this size by one instruction, which a device makes at multiples of it only. */
template <size_t bytes>
inline void
use_aligned (const volatile void *memory, bool is_write)
{
  guintptr at = (guintptr)memory;

  if (!is_running || at - region >= n_bytes)
    {
      use (memory, bytes, is_write);
      return;
    }
  if (at % bytes != 0)
    refuse_alignment (bytes, is_write);
  races_use ((const void *)at, bytes, is_write);
  for (size_t done = 0; done < bytes; done += MIN (bytes, 8))
    mark_word<MIN (bytes, 8)> (at + done, is_write);
}

/* Declares to an op the runs of bytes in its pages that bear the mark `wanted`; a run may go on
 * from one page to the next. */
struct Runs
{
  Mark wanted;
  size_t begin = 0, end = 0; /* the run that has not been declared */
  bool is_fine = true;

  void
  flush (Op &op)
  {
    void *at = (void *)(region + begin);

    if (begin < end)
      is_fine &= wanted == READ ? op.read (at, end - begin) : op.write (at, end - begin);
    begin = end;
  }

  void
  add_byte (Op &op, size_t at)
  {
    if (end != at)
      {
        flush (op);
        begin = at;
      }
    end = at + 1;
  }

  void
  add_page (Op &op, size_t page)
  {
    const guint64 eight = 0x0101010101010101u * wanted;
    guint64 marks;

    for (size_t i = page * PAGE; i < (page + 1) * PAGE; i += sizeof marks)
      {
        memcpy (&marks, shadow + i, sizeof marks);
        if ((marks & eight) == eight && end == i)
          end = i + sizeof marks;
        else if ((marks & eight) != 0)
          for (size_t j = i; j < i + sizeof marks; j++)
            if (shadow[j] & wanted)
              add_byte (op, j);
      }
  }
};

}

void
trace_map (void *at, size_t bytes)
{
  region = (guintptr)at;
  n_bytes = bytes;
  shadow = (guint8 *)reserve (bytes);
  is_page_used = (guint8 *)reserve (bytes / PAGE);
  dl_iterate_phdr (note_image, nullptr);
  races_map (at, bytes);
}

void
trace_live (const void *at, size_t bytes, bool is_live)
{
  fill (shadow + ((guintptr)at - region), is_live ? LIVE : 0, bytes);
}

void
trace_begin (const void *stack_memory, size_t stack_bytes, const void *of_closure,
             size_t closure_bytes)
{
  stacks = (guintptr)stack_memory;
  stacks_end = stacks + stack_bytes;
  closure = (guintptr)of_closure;
  closure_end = closure + closure_bytes;
}

void
trace_threads (bool run)
{
  is_running = run;
}

bool
trace_end (Op &op)
{
  Runs reads = { READ }, writes = { WRITTEN };

  std::sort (pages.begin (), pages.end ());
  for (size_t page : pages)
    reads.add_page (op, page);
  reads.flush (op);
  for (size_t page : pages)
    writes.add_page (op, page);
  writes.flush (op);
  for (size_t page : pages)
    {
      is_page_used[page] = 0;
      for (size_t i = page * PAGE; i < (page + 1) * PAGE; i++)
        shadow[i] &= LIVE;
    }
  pages.clear ();
  return reads.is_fine && writes.is_fine;
}

}

void
fake_cuda_use (const void *at, size_t bytes, bool is_write)
{
  fake::use (at, bytes, is_write);
}

/* --- the compiler's names ----------------------------------------------------------------- */

#define HOOKS(bytes) \
  void __tsan_read##bytes (void *at) { fake::use_aligned<bytes> (at, false); } \
  void __tsan_write##bytes (void *at) { fake::use_aligned<bytes> (at, true); } \
  void __tsan_unaligned_read##bytes (void *at) { fake::use (at, bytes, false); } \
  void __tsan_unaligned_write##bytes (void *at) { fake::use (at, bytes, true); }

extern "C"
{
  /* Some compilers have declared these, each in its own way. */
  void read_range (void *at, size_t bytes) __asm__("__tsan_read_range");
  void write_range (void *at, size_t bytes) __asm__("__tsan_write_range");
  void function_entry (void *caller) __asm__("__tsan_func_entry");
  void function_exit () __asm__("__tsan_func_exit");

  HOOKS (1)
  HOOKS (2)
  HOOKS (4)
  HOOKS (8)
  HOOKS (16)

  void
  read_range (void *at, size_t bytes)
  {
    fake::use (at, bytes, false);
  }

  void
  write_range (void *at, size_t bytes)
  {
    fake::use (at, bytes, true);
  }

  void
  __tsan_init ()
  {
  }

  void
  function_entry (void *caller)
  {
    if (fake::is_running)
      fake::ptx_enter (__builtin_return_address (0));
  }

  void
  function_exit ()
  {
  }

  void *__real_memset (void *at, int byte, size_t bytes) __attribute__ ((weak));

  /* Clang copies structs by calls of memcpy, without hooks; programs are linked with --wrap for
   * these. */
  void *
  __wrap_memcpy (void *to, const void *from, size_t bytes)
  {
    fake::use (from, bytes, false);
    fake::use (to, bytes, true);
    return memmove (to, from, bytes);
  }

  void *
  __wrap_memset (void *at, int byte, size_t bytes)
  {
    fake::use (at, bytes, true);
    return __real_memset (at, byte, bytes);
  }
}
