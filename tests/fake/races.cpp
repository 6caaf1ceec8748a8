/* SPDX-License-Identifier: Apache-2.0 */
/* Finds races within one launch: two threads use a byte, one of them writes it, and neither a
 * barrier nor a __syncwarp lies between the two uses. It does not matter whether the race did harm
 * in the one order in which threads run here, and blocks are never ordered. Atomics do not race
 * with each other. A shuffle orders nothing, as the PTX manual says. For each byte of shared and
 * device memory it is noted who wrote it last, and who has read it since. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <memory>
#include <sys/mman.h>

extern "C" char __start_fake_cuda_shared[] __attribute__ ((weak));
extern "C" char __stop_fake_cuda_shared[] __attribute__ ((weak));

namespace fake
{

namespace
{

/* A use by one thread. An epoch begins with each block and each barrier, counted over all
 * launches. */
struct Use
{
  guint32 epoch; /* 0: none */
  guint16 thread;
  guint8 syncs; /* syncs of its warp, modulo 256: so many never lie between two uses of a byte */
  bool is_atomic : 1, is_by_more : 1; /* whether other readers, too, have no sync between them */
};

/* The uses of a byte: its writer, its last reader, and another reader, of another warp or, better,
 * of another block. */
struct Trail
{
  Use writer, reader, other;
};

struct Free
{
  void
  operator() (Trail *trail) const
  {
    g_free (trail);
  }
};

const size_t MAX_DYNAMIC = 227 * 1024;

bool is_on;
bool is_atomic; /* whether the current thread's access is atomic */
unsigned thread;
guint8 syncs[32]; /* syncs of each warp of the block */
guint32 epoch, of_launch, of_block;

/* Trails of device memory, by page: a page that is used in a launch has a trail for each byte. */
guint32 *trail_of_page; /* 0: none */
guintptr region;
size_t n_bytes;
std::vector<size_t> pages;
std::vector<std::unique_ptr<Trail, Free>>
    trails; /* trails of earlier launches: their epochs are over */
std::vector<Trail> shared, dynamic;
const guint8 *dynamic_begin;

bool
is_of_this_warp (const Use &use)
{
  return use.epoch >= of_block && use.thread / 32 == thread / 32;
}

/* Whether the use is over for the thread that runs now. */
bool
is_over (const Use &use, bool is_shared)
{
  if (use.epoch < of_launch || (is_shared && use.epoch < of_block))
    return true;
  if (use.epoch < of_block)
    return false;
  if (use.epoch < epoch)
    return true;
  if (!is_of_this_warp (use))
    return false;
  return use.syncs != syncs[thread / 32] || (use.thread == thread && !use.is_by_more);
}

bool
races (const Use &earlier, bool is_shared)
{
  return !is_over (earlier, is_shared) && !(earlier.is_atomic && is_atomic);
}

void
complain (const void *at, const Use &earlier, bool earlier_wrote, bool writes, bool is_shared)
{
  if (!runtime.error.empty ())
    return;
  trace_threads (false); /* the code below is not the kernel's */
  const Allocation *allocation = is_shared ? nullptr : find (at);
  std::string what = "shared memory";

  if (allocation != nullptr)
    {
      size_t from = (size_t)((const guint8 *)at - allocation->at);

      what = bytes_of (*allocation, from, from + 1);
    }
  report (where_kernel_is () + (writes ? " writes " : " reads ") + what + ", which thread "
          + std::to_string (earlier.thread) + (earlier.epoch < of_block ? " of another block" : "")
          + (earlier_wrote ? " writes" : " reads") + ": nothing orders the two");
  trace_threads (true);
}

void
add_reader (Trail &trail, const Use &self)
{
  Use &last = trail.reader;

  if (last.epoch >= of_launch && is_of_this_warp (last))
    {
      bool is_same_turn = last.epoch == epoch && last.syncs == self.syncs;

      last = { self.epoch, self.thread, self.syncs, self.is_atomic && last.is_atomic,
               is_same_turn && (last.is_by_more || last.thread != thread) };
      return;
    }
  if (last.epoch >= of_launch && (trail.other.epoch < of_launch || trail.other.epoch >= of_block))
    trail.other = last;
  last = self;
}

void
follow (Trail &trail, const void *at, bool writes, bool is_shared)
{
  Use self = { epoch, (guint16)thread, syncs[thread / 32], is_atomic, false };

  if (races (trail.writer, is_shared))
    complain (at, trail.writer, true, writes, is_shared);
  if (!writes)
    {
      add_reader (trail, self);
      return;
    }
  if (races (trail.reader, is_shared))
    complain (at, trail.reader, false, true, is_shared);
  else if (races (trail.other, is_shared))
    complain (at, trail.other, false, true, is_shared);
  if (is_atomic && trail.writer.is_atomic && !is_over (trail.writer, is_shared))
    {
      self.thread = trail.writer.thread;
      self.syncs = trail.writer.syncs;
      self.is_by_more = true;
    }
  trail = { self, {}, {} };
}

Trail *
trails_of (size_t page)
{
  if (trail_of_page[page] == 0)
    {
      pages.push_back (page);
      if (pages.size () > trails.size ())
        trails.emplace_back (
            g_new0 (Trail, PAGE)); /* memset would be seen as the kernel's access */
      trail_of_page[page] = (guint32)pages.size ();
    }
  return trails[trail_of_page[page] - 1].get ();
}

/* Compares field by field: memcpy or memcmp would be seen as the kernel's access. */
bool
is_same (const Use &one, const Use &other)
{
  return one.epoch == other.epoch && one.thread == other.thread && one.syncs == other.syncs
         && one.is_atomic == other.is_atomic && one.is_by_more == other.is_by_more;
}

/* Notes an access of several bytes. Mostly they were used together before, too: what is true of the
 * first byte then is true of all. */
void
follow_all (Trail *of, const guint8 *at, size_t bytes, bool writes, bool is_shared)
{
  const Trail first = of[0];

  follow (of[0], at, writes, is_shared);
  for (size_t i = 1; i < bytes; i++)
    if (is_same (of[i].writer, first.writer) && is_same (of[i].reader, first.reader)
        && is_same (of[i].other, first.other))
      of[i] = of[0];
    else
      follow (of[i], at + i, writes, is_shared);
}

/* Notes an access to shared memory; FALSE: the address is not there. */
bool
follow_shared (std::vector<Trail> &of, const guint8 *begin, const guint8 *at, size_t bytes,
               bool writes)
{
  if (at < begin || at + bytes > begin + of.size ())
    return false;
  follow_all (&of[(size_t)(at - begin)], at, bytes, writes, true);
  return true;
}

}

void
races_map (void *at, size_t bytes)
{
  region = (guintptr)at;
  n_bytes = bytes;
  trail_of_page
      = (guint32 *)mmap (nullptr, bytes / PAGE * sizeof *trail_of_page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trail_of_page == MAP_FAILED)
    g_error ("no address space to look for races");
}

void
races_find (bool find)
{
  is_on = find;
}

void
races_begin (const void *dynamic_shared)
{
  for (size_t page : pages)
    trail_of_page[page] = 0;
  pages.clear ();
  of_launch = epoch + 1;
  is_atomic = false;
  dynamic_begin = (const guint8 *)dynamic_shared;
  if (!is_on)
    return;
  dynamic.resize (MAX_DYNAMIC);
  if (__start_fake_cuda_shared != nullptr)
    shared.resize ((size_t)(__stop_fake_cuda_shared - __start_fake_cuda_shared));
}

void
races_block ()
{
  of_block = ++epoch;
}

void
races_barrier ()
{
  epoch++;
}

void
races_sync_warp (unsigned warp)
{
  syncs[warp]++;
}

void
races_thread (unsigned number)
{
  thread = number;
}

void
races_use (const void *memory, size_t bytes, bool writes)
{
  const guint8 *at = (const guint8 *)memory;

  if (!is_on)
    return;
  if ((guintptr)at - region < n_bytes)
    for (size_t done = 0, n; done < bytes; done += n)
      {
        size_t from = (guintptr)at + done - region;

        n = MIN (bytes - done, PAGE - from % PAGE);
        follow_all (trails_of (from / PAGE) + from % PAGE, at + done, n, writes, false);
      }
  else if (!follow_shared (shared, (const guint8 *)__start_fake_cuda_shared, at, bytes, writes))
    follow_shared (dynamic, dynamic_begin, at, bytes, writes);
}

}

void
fake_cuda_begin_atomic (void)
{
  fake::is_atomic = true;
}

void
fake_cuda_end_atomic (void)
{
  fake::is_atomic = false;
}
