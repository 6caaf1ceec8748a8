/* SPDX-License-Identifier: Apache-2.0 */
/* Device and pinned memory: allocating, freeing, guarding and copying. An address is never used
 * twice between two resets, so a use of freed memory is reported. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fake
{

namespace
{

const guint8 POISON = 0xff; /* a NaN in every format */
const guint8 BEYOND = 0xa5; /* fills an allocation's last page behind its end */
const size_t FILLED = (size_t)1 << 20;

guint8 *region;
struct sigaction earlier_handler;
const guint8 *volatile fault; /* the forbidden address that the host has touched */

size_t
in_pages (size_t bytes)
{
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

bool
is_in_region (const void *at)
{
  return (const guint8 *)at >= region && (const guint8 *)at < region + (HOST + 1) * PART_BYTES;
}

/* Notes the fault, and lets the host continue. */
void
handle_fault (int number, siginfo_t *info, void *context)
{
  if (is_in_region (info->si_addr))
    {
      guint8 *page = (guint8 *)((guintptr)info->si_addr / PAGE * PAGE);

      fault = (const guint8 *)info->si_addr;
      if (mprotect (page, PAGE, PROT_READ | PROT_WRITE) == 0)
        return;
    }
  sigaction (number, &earlier_handler,
             nullptr); /* the access is repeated, and the earlier handler gets it */
}

}

void
map_region ()
{
  size_t bytes = (HOST + 1) * PART_BYTES;
  struct sigaction action = {};

  if (region != nullptr)
    return;
  region = (guint8 *)mmap (nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                           -1, 0);
  if (region == MAP_FAILED)
    g_error ("no address space for fake devices");
  trace_map (region, bytes);
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction (SIGSEGV, &action, &earlier_handler);
}

Allocation *
find (const void *at)
{
  auto after = runtime.allocations.upper_bound (at);

  if (after == runtime.allocations.begin () || !is_in_region (at))
    return nullptr;
  Allocation *allocation = std::prev (after)->second.get ();
  return (const guint8 *)at < allocation->at + in_pages (allocation->bytes) + PAGE ? allocation
                                                                                   : nullptr;
}

void
open_memory (bool open)
{
  if (runtime.guards)
    for (const auto &[at, allocation] : runtime.allocations)
      if (!allocation->is_freed && allocation->part != HOST)
        mprotect (allocation->at, in_pages (allocation->bytes),
                  open ? PROT_READ | PROT_WRITE : PROT_NONE);
  if (open && fault != nullptr)
    {
      Allocation *allocation = find ((const void *)fault);
      size_t from = allocation != nullptr ? (size_t)(fault - allocation->at) : 0;

      report (allocation == nullptr ? "the host touches memory of a device that was never taken"
                                    : "the host touches " + bytes_of (*allocation, from, from + 1)
                                          + (allocation->is_freed ? ", freed," : "")
                                          + " outside of the runtime's calls");
      fault = nullptr;
    }
}

/* --- taking and giving back --------------------------------------------------------------- */

/* Fills memory with a byte. Large allocations are pages of a file, each of which is copied when it
 * is first written: most of a workspace is never touched. */
void
fill (guint8 *at, guint8 byte, size_t bytes)
{
  static int files[256];
  guint8 *begin = (guint8 *)(((guintptr)at + PAGE - 1) / PAGE * PAGE);
  const guint8 *end = at + bytes;

  if (bytes < 2 * FILLED)
    {
      memset (at, byte, bytes);
      return;
    }
  if (files[byte] == 0)
    {
      std::vector<guint8> filled (FILLED, byte);

      files[byte] = memfd_create ("fake", MFD_CLOEXEC);
      if (files[byte] < 0 || write (files[byte], filled.data (), FILLED) != (ssize_t)FILLED)
        g_error ("no memory for fake devices");
    }
  memset (at, byte, (size_t)(begin - at));
  for (; begin + FILLED <= end; begin += FILLED)
    if (mmap (begin, FILLED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
              files[byte], 0)
        == MAP_FAILED)
      g_error ("no memory for fake devices");
  memset (begin, byte, (size_t)(end - begin));
}

namespace
{

cudaError_t
take (void **out, size_t bytes, unsigned part)
{
  Device &device = runtime.device[part];
  size_t pages = in_pages (bytes);
  auto allocation = std::make_unique<Allocation> ();

  *out = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  if (bytes > PART_BYTES || device.next + pages + PAGE > PART_BYTES
      || (part != HOST && device.used + bytes > runtime.machine.bytes))
    return cudaErrorMemoryAllocation;
  allocation->number = ++runtime.allocated;
  allocation->part = part;
  allocation->at = region + part * PART_BYTES + device.next;
  allocation->bytes = bytes;
  allocation->cells.emplace (0, Cell{ bytes, Access (), {} });
  if (mprotect (allocation->at, pages, PROT_READ | PROT_WRITE) != 0)
    return cudaErrorMemoryAllocation;
  fill (allocation->at, POISON, bytes);
  memset (allocation->at + bytes, BEYOND, pages - bytes);
  trace_live (allocation->at, bytes, part != HOST);
  device.next += pages + PAGE;
  device.used += bytes;
  *out = allocation->at;
  runtime.allocations[allocation->at] = std::move (allocation);
  return cudaSuccess;
}

void
check_end (const Allocation &allocation)
{
  for (size_t i = allocation.bytes; i < in_pages (allocation.bytes); i++)
    if (allocation.at[i] != BEYOND)
      {
        report (bytes_of (allocation, i, i + 1) + ": beyond its end, and written");
        return;
      }
}

void
unmap (const Allocation &allocation)
{
  trace_live (allocation.at, allocation.bytes, false);
  madvise (allocation.at, in_pages (allocation.bytes), MADV_DONTNEED);
  mprotect (allocation.at, in_pages (allocation.bytes), PROT_NONE);
}

cudaError_t
give_back (void *memory, bool is_pinned, const char *by)
{
  auto found = runtime.allocations.find (memory);

  if (memory == nullptr)
    return cudaSuccess;
  if (found == runtime.allocations.end () || (found->second->part == HOST) != is_pinned)
    {
      report (std::string (by) + " of what it did not give");
      return cudaErrorInvalidValue;
    }
  Allocation &allocation = *found->second;
  if (allocation.is_freed)
    {
      report (std::string (by) + " of memory " + std::to_string (allocation.number) + " again");
      return cudaErrorInvalidValue;
    }
  check_unused (allocation, by);
  check_end (allocation);
  unmap (allocation);
  allocation.is_freed = true;
  runtime.device[allocation.part].used -= allocation.bytes;
  return cudaSuccess;
}

}

void
forget_memory ()
{
  runtime.pending.clear ();
  for (const auto &[at, allocation] : runtime.allocations)
    if (!allocation->is_freed)
      unmap (*allocation);
  runtime.allocations.clear ();
}

void
check_memory ()
{
  for (const auto &[at, allocation] : runtime.allocations)
    if (!allocation->is_freed)
      {
        check_end (*allocation);
        report ((allocation->part == HOST ? "pinned memory " : "memory ")
                + std::to_string (allocation->number) + " (" + std::to_string (allocation->bytes)
                + " bytes) is never freed");
      }
}

/* --- copies to and from pinned memory ----------------------------------------------------- */

namespace
{

/* Ends a copy: what it copied to the host arrives; where it reads host memory that has been changed
 * since the copy was issued, that is reported. */
void
end_copy (const Pending &copy)
{
  const Allocation *allocation = find (copy.host);

  if (allocation == nullptr || allocation->is_freed)
    return;
  if (copy.to_host)
    memcpy (copy.host, copy.bytes.data (), copy.bytes.size ());
  else if (memcmp (copy.host, copy.bytes.data (), copy.bytes.size ()) != 0)
    {
      size_t from = (size_t)((guint8 *)copy.host - allocation->at);

      report ("the host changes " + bytes_of (*allocation, from, from + copy.bytes.size ())
              + " while " + name_of (copy.op) + " may still read them");
    }
}

bool
overlaps (const Pending &copy, const void *at, size_t bytes)
{
  return (guint8 *)copy.host < (const guint8 *)at + bytes
         && (const guint8 *)at < (guint8 *)copy.host + copy.bytes.size ();
}

/* Ends copies that are over according to `known`: those into and out of [at, at + bytes), or
 * all. */
void
settle_some (const Clock &known, const void *at, size_t bytes)
{
  std::vector<Pending> others;

  for (Pending &copy : runtime.pending)
    if (known.knows (copy.op.stream, copy.op.epoch)
        && (at == nullptr || (!copy.to_host && overlaps (copy, at, bytes))))
      end_copy (copy);
    else
      others.push_back (std::move (copy));
  runtime.pending = std::move (others);
}

/* Starts to watch for writes of the host to pinned memory that a copy reads, and returns what the
 * copy sees. That differs from the memory's contents where an earlier copy has not arrived: the
 * host must not touch these bytes. */
std::vector<guint8>
read_pinned (const Op &op, void *at, size_t bytes)
{
  std::vector<guint8> data ((guint8 *)at, (guint8 *)at + bytes);
  std::vector<bool> arrives (bytes);

  for (const Pending &copy : runtime.pending)
    if (copy.to_host && overlaps (copy, at, bytes))
      for (size_t i = 0; i < bytes; i++)
        {
          size_t j = (size_t)((guint8 *)at + i - (guint8 *)copy.host);

          if ((guint8 *)at + i >= (guint8 *)copy.host && j < copy.bytes.size ())
            {
              data[i] = copy.bytes[j];
              arrives[i] = true;
            }
        }
  for (size_t begin = 0, end; begin < bytes; begin = end)
    {
      for (end = begin + 1; end < bytes && arrives[end] == arrives[begin];)
        end++;
      if (!arrives[begin])
        runtime.pending.push_back ({ (guint8 *)at + begin,
                                     std::vector<guint8> (data.begin () + (ptrdiff_t)begin,
                                                          data.begin () + (ptrdiff_t)end),
                                     false, op.self });
    }
  return data;
}

bool
is_pinned (const void *at)
{
  return is_in_region (at) && (const guint8 *)at >= region + HOST * PART_BYTES;
}

bool
is_device (const void *at)
{
  return is_in_region (at) && !is_pinned (at);
}

/* Copies; both sides have been checked to be allocated. */
void
move (Op &op, void *to, const void *from, size_t bytes)
{
  if (is_pinned (from))
    {
      std::vector<guint8> data = read_pinned (op, (void *)from, bytes);

      memcpy (to, data.data (), bytes);
    }
  else if (is_pinned (to))
    {
      const guint8 *bytes_from = (const guint8 *)from;

      settle_some (op.stream->clock, to, bytes);
      runtime.pending.push_back (
          { to, std::vector<guint8> (bytes_from, bytes_from + bytes), true, op.self });
      memset (to, POISON, bytes);
    }
  else
    memmove (to, from, bytes);
}

/* Whether a copy of this kind can go from `from` to `to`. */
bool
agrees (cudaMemcpyKind kind, const void *to, const void *from)
{
  switch (kind)
    {
    case cudaMemcpyHostToHost:
      return !is_device (to) && !is_device (from);
    case cudaMemcpyHostToDevice:
      return is_device (to) && !is_device (from);
    case cudaMemcpyDeviceToHost:
      return !is_device (to) && is_device (from);
    case cudaMemcpyDeviceToDevice:
      return is_device (to) && is_device (from);
    case cudaMemcpyDefault:
      return true;
    }
  return false;
}

std::string
place (const void *at)
{
  return is_device (at) ? "device" : is_pinned (at) ? "pinned" : "pageable";
}

struct Rows
{
  void *to;
  size_t to_pitch;
  const void *from;
  size_t from_pitch, width, height;
};

cudaError_t
copy_rows (Op &op, const Rows &rows)
{
  for (size_t row = 0; row < rows.height && rows.width > 0; row++)
    {
      guint8 *to = (guint8 *)rows.to + row * rows.to_pitch;
      const guint8 *from = (const guint8 *)rows.from + row * rows.from_pitch;

      if ((is_in_region (from) && !op.read (from, rows.width))
          || (is_in_region (to) && !op.write (to, rows.width)))
        return cudaErrorInvalidValue;
      move (op, to, from, rows.width);
    }
  if (is_device (rows.from) && place (rows.to) == "pageable")
    host_learns (op.stream->clock); /* such a copy returns when it is done */
  return cudaSuccess;
}

cudaError_t
submit_copy (const Rows &rows, cudaMemcpyKind kind, cudaStream_t stream)
{
  if (!agrees (kind, rows.to, rows.from))
    {
      report ("a copy from " + place (rows.from) + " to " + place (rows.to)
              + " memory is said to be of kind " + std::to_string ((int)kind));
      return result (cudaErrorInvalidMemcpyDirection);
    }
  if (rows.to_pitch < rows.width || rows.from_pitch < rows.width)
    return result (cudaErrorInvalidValue);
  if ((place (rows.to) == "pageable" || place (rows.from) == "pageable") && is_capturing (stream))
    return result (cudaErrorStreamCaptureUnsupported);
  if ((place (rows.to) == "pageable" || place (rows.from) == "pageable")
      && stalled (stream_of (stream)) != nullptr)
    return hangs ("a copy of pageable memory");
  return submit (stream,
                 "memcpy " + std::to_string (rows.width * rows.height) + " " + place (rows.from)
                     + " to " + place (rows.to),
                 [=] (Op &op) { return copy_rows (op, rows); });
}

}

void
settle (const Clock &known)
{
  settle_some (known, nullptr, 0);
}

}

/* --- the interface ------------------------------------------------------------------------ */

using namespace fake;

cudaError_t
cudaMalloc (void **out, size_t bytes)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error) || forbids (&error))
    return error;
  return result (take (out, bytes, current_device ()));
}

cudaError_t
cudaFree (void *memory)
{
  Lock lock;
  cudaError_t error;

  if (forbids (&error))
    return error;
  return result (give_back (memory, false, "cudaFree"));
}

cudaError_t
cudaHostAlloc (void **out, size_t bytes, unsigned flags)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error) || forbids (&error))
    return error;
  if (flags > (cudaHostAllocPortable | cudaHostAllocMapped))
    return result (cudaErrorInvalidValue);
  return result (take (out, bytes, HOST));
}

cudaError_t
cudaMallocHost (void **out, size_t bytes)
{
  return cudaHostAlloc (out, bytes, cudaHostAllocDefault);
}

cudaError_t
cudaFreeHost (void *memory)
{
  Lock lock;

  return result (give_back (memory, true, "cudaFreeHost"));
}

cudaError_t
cudaMemGetInfo (size_t *free, size_t *total)
{
  Lock lock;

  *total = runtime.machine.bytes;
  *free = *total - runtime.device[current_device ()].used;
  return cudaSuccess;
}

cudaError_t
cudaPointerGetAttributes (struct cudaPointerAttributes *attributes, const void *at)
{
  Lock lock;
  const Allocation *allocation = find (at);

  *attributes = {};
  attributes->device = -1;
  if (allocation == nullptr || allocation->is_freed)
    {
      attributes->hostPointer = (void *)at;
      return cudaSuccess;
    }
  attributes->type = allocation->part == HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = allocation->part == HOST ? 0 : (int)allocation->part;
  attributes->devicePointer = (void *)at;
  attributes->hostPointer = allocation->part == HOST ? (void *)at : nullptr;
  return cudaSuccess;
}

cudaError_t
cudaMemcpy2DAsync (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                   size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  return submit_copy ({ to, to_pitch, from, from_pitch, width, height }, kind, stream);
}

cudaError_t
cudaMemcpyAsync (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                 cudaStream_t stream)
{
  return cudaMemcpy2DAsync (to, bytes, from, bytes, bytes, 1, kind, stream);
}

/* Copies on the default stream; the host waits unless both sides are on a device. */
cudaError_t
cudaMemcpy (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
  Lock lock;
  cudaError_t error = cudaMemcpyAsync (to, from, bytes, kind, nullptr);

  if (error == cudaSuccess && !(is_device (to) && is_device (from)))
    host_learns (stream_of (nullptr)->clock);
  return error;
}

cudaError_t
cudaMemsetAsync (void *at, int byte, size_t bytes, cudaStream_t stream)
{
  Lock lock;
  cudaError_t error;

  if (fails (&error))
    return error;
  return submit (stream, "memset " + std::to_string (bytes), [=] (Op &op) {
    if (!op.write (at, bytes))
      return cudaErrorInvalidValue;
    if (is_pinned (at))
      settle_some (op.stream->clock, at, bytes);
    memset (at, byte, bytes);
    return cudaSuccess;
  });
}

cudaError_t
cudaMemset (void *at, int byte, size_t bytes)
{
  return cudaMemsetAsync (at, byte, bytes, nullptr);
}
