/* SPDX-License-Identifier: Apache-2.0 */
/* The vector clocks of streams, host threads and bytes; the reports of missing order; and the
 * log. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <algorithm>

namespace fake
{

/* --- clocks ------------------------------------------------------------------------------- */

void
Clock::join (const Clock &other)
{
  if (at.size () < other.at.size ())
    at.resize (other.at.size ());
  for (size_t i = 0; i < other.at.size (); i++)
    at[i] = std::max (at[i], other.at[i]);
}

bool
Clock::knows (unsigned stream, guint64 epoch) const
{
  return epoch == 0 || (stream < at.size () && at[stream] >= epoch);
}

bool
Access::operator== (const Access &other) const
{
  return number == other.number;
}

namespace
{

/* The clocks of threads that have ended: any thread that continues takes them over. */
Clock of_ended_threads;
std::map<const void *, Clock> given; /* see fake_order_host_give */

/* A thread starts with what all others know, as one of them has started it, directly or not. */
struct HostThread;
std::vector<HostThread *> host_threads;

struct HostThread
{
  Clock clock;
  guint64 generation = 0;

  ~HostThread ()
  {
    Lock lock;

    if (generation == runtime.generation)
      of_ended_threads.join (clock);
    host_threads.erase (std::remove (host_threads.begin (), host_threads.end (), this),
                        host_threads.end ());
  }
};

thread_local HostThread host_thread;

}

Clock &
host_clock ()
{
  HostThread &self = host_thread;

  if (self.generation != runtime.generation)
    {
      self.generation = runtime.generation;
      self.clock = Clock ();
      for (const HostThread *other : host_threads)
        if (other->generation == runtime.generation)
          self.clock.join (other->clock);
      if (std::find (host_threads.begin (), host_threads.end (), &self) == host_threads.end ())
        host_threads.push_back (&self);
    }
  self.clock.join (of_ended_threads);
  return self.clock;
}

void
host_learns (const Clock &clock)
{
  host_clock ().join (clock);
  settle (host_clock ());
}

void
forget_left ()
{
  for (const auto &[object, left] : runtime.left)
    if (left.forget != nullptr)
      left.forget ();
  runtime.left.clear ();
}

void
forget_clocks ()
{
  of_ended_threads = Clock ();
  given.clear ();
}

/* --- words -------------------------------------------------------------------------------- */

void
report (const std::string &text)
{
  if (runtime.error.empty ())
    runtime.error = text;
}

void
add_to_log (const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_autofree char *line = g_strdup_vprintf (format, args);
  va_end (args);
  runtime.log += line;
  runtime.log += '\n';
}

std::string
name_of (const Access &access)
{
  return runtime.operations[access.number] + " (#" + std::to_string (access.number) + ", stream "
         + std::to_string (access.stream) + ")";
}

std::string
bytes_of (const Allocation &allocation, size_t from, size_t to)
{
  return std::to_string (to - from) + " bytes at " + std::to_string (from) + " of "
         + (allocation.part == HOST ? "pinned memory " : "memory ")
         + std::to_string (allocation.number) + " (" + std::to_string (allocation.bytes)
         + " bytes)";
}

/* --- operations --------------------------------------------------------------------------- */

namespace
{

/* Orders the stream and the default stream of its device, which wait for each other unless the
 * stream was made not to. */
void
order_with_default (Stream *stream)
{
  Stream *first = runtime.streams[stream->device].get ();

  if (stream == first)
    {
      for (const auto &other : runtime.streams)
        if (other->device == stream->device && !(other->flags & cudaStreamNonBlocking))
          stream->clock.join (other->clock);
    }
  else if (!(stream->flags & cudaStreamNonBlocking))
    stream->clock.join (first->clock);
}

/* Splits a cell so that one begins at `at`. */
std::map<size_t, Cell>::iterator
split (std::map<size_t, Cell> &cells, size_t at)
{
  auto next = cells.lower_bound (at);

  if (next != cells.end () && next->first == at)
    return next;
  if (next == cells.begin ())
    return next;
  auto cell = std::prev (next);
  if (cell->second.end <= at)
    return next;
  Cell rest = cell->second;
  cell->second.end = at;
  return cells.emplace_hint (next, at, rest);
}

void
complain (const Op &op, const Allocation &allocation, size_t from, size_t to, bool is_write,
          const Access &earlier, bool earlier_wrote)
{
  report (name_of (op.self) + (is_write ? " writes " : " reads ") + bytes_of (allocation, from, to)
          + ", which " + name_of (earlier) + (earlier_wrote ? " writes" : " reads")
          + ": nothing orders the two");
}

void
check_cell (const Op &op, const Allocation &allocation, size_t from, const Cell &cell,
            bool is_write)
{
  const Clock &clock = op.stream->clock;

  if (!clock.knows (cell.writer.stream, cell.writer.epoch))
    complain (op, allocation, from, cell.end, is_write, cell.writer, true);
  if (is_write)
    for (const Access &reader : cell.readers)
      if (!clock.knows (reader.stream, reader.epoch))
        complain (op, allocation, from, cell.end, true, reader, false);
}

void
add_reader (Cell &cell, const Access &self)
{
  for (Access &reader : cell.readers)
    if (reader.stream == self.stream)
      {
        reader = self;
        return;
      }
  cell.readers.push_back (self);
}

/* Joins the cell with the one before it where both have the same history. */
void
merge (std::map<size_t, Cell> &cells, std::map<size_t, Cell>::iterator cell)
{
  if (cell == cells.begin () || cell == cells.end ())
    return;
  auto before = std::prev (cell);
  if (before->second.end == cell->first && before->second.writer == cell->second.writer
      && before->second.readers == cell->second.readers)
    {
      before->second.end = cell->second.end;
      cells.erase (cell);
    }
}

void
use (Op &op, Allocation &allocation, size_t from, size_t to, bool is_write)
{
  std::map<size_t, Cell> &cells = allocation.cells;
  auto first = split (cells, from), last = split (cells, to);

  for (auto cell = first; cell != last; ++cell)
    check_cell (op, allocation, cell->first, cell->second, is_write);
  if (is_write)
    {
      cells.erase (first, last);
      cells.emplace (from, Cell{ to, op.self, {} });
    }
  else
    for (auto cell = first; cell != last; ++cell)
      add_reader (cell->second, op.self);
  for (auto cell = cells.find (from); cell != cells.end () && cell->first <= to;)
    {
      auto next = std::next (cell);

      merge (cells, cell);
      cell = next;
    }
}

}

Op
begin (Stream *stream, const std::string &name)
{
  Op op;

  g_assert (is_locked ());
  stream->clock.join (host_clock ());
  order_with_default (stream);
  if (stream->clock.at.size () <= stream->number)
    stream->clock.at.resize (stream->number + 1);
  op.stream = stream;
  op.self.stream = stream->number;
  op.self.epoch = ++stream->clock.at[stream->number];
  op.self.number = (unsigned)runtime.operations.size ();
  runtime.operations.push_back (name);
  return op;
}

/* Notes an access. Returns FALSE, with a report, where the operation's device cannot reach all of
 * the bytes. */
bool
touch (Op &op, const void *at, size_t bytes, bool is_write)
{
  Allocation *allocation = bytes > 0 ? find (at) : nullptr;
  size_t from;

  if (bytes == 0)
    return true;
  if (allocation == nullptr || allocation->is_freed)
    {
      report (name_of (op.self) + (is_write ? " writes " : " reads ") + std::to_string (bytes)
              + " bytes of "
              + (allocation == nullptr ? "memory that is not a device's"
                                       : "freed memory " + std::to_string (allocation->number)));
      return false;
    }
  from = (size_t)((const guint8 *)at - allocation->at);
  if (from > allocation->bytes || bytes > allocation->bytes - from)
    {
      report (name_of (op.self) + (is_write ? " writes " : " reads ")
              + bytes_of (*allocation, from, from + bytes) + ": beyond its end");
      return false;
    }
  if (allocation->part != HOST && allocation->part != op.stream->device
      && !(runtime.device[op.stream->device].peers >> allocation->part & 1))
    {
      report (name_of (op.self) + " on device " + std::to_string (op.stream->device) + " touches "
              + bytes_of (*allocation, from, from + bytes) + " of device "
              + std::to_string (allocation->part) + " without access to its peer");
      return false;
    }
  runtime.moved += bytes;
  use (op, *allocation, from, from + bytes, is_write);
  check_operands (op, *allocation, at, bytes, is_write);
  return true;
}

bool
Op::read (const void *at, size_t bytes)
{
  return touch (*this, at, bytes, false);
}

bool
Op::write (void *at, size_t bytes)
{
  return touch (*this, at, bytes, true);
}

/* Reports uses of memory that may still go on when the host frees it. */
void
check_unused (Allocation &allocation, const char *by)
{
  const Clock &known = host_clock ();

  for (const auto &[from, cell] : allocation.cells)
    {
      std::vector<Access> users = cell.readers;

      users.push_back (cell.writer);
      for (const Access &user : users)
        if (!known.knows (user.stream, user.epoch))
          {
            report (std::string (by) + " of " + bytes_of (allocation, from, cell.end) + ", which "
                    + name_of (user) + " may still use");
            return;
          }
    }
}

}

/* --- for other libraries ------------------------------------------------------------------ */

using namespace fake;

cudaError_t
fake_order_begin (cudaStream_t stream, const char *name)
{
  Stream *self;

  lock_runtime ();
  self = stream_of (stream);
  if (self == nullptr || self->capture != nullptr)
    {
      cudaError_t error = result (self == nullptr ? cudaErrorInvalidResourceHandle
                                                  : cudaErrorStreamCaptureUnsupported);

      unlock_runtime ();
      return error;
    }
  self->ops.push_back (begin (self, name));
  add_to_log ("%s stream %u", name, self->number);
  return cudaSuccess;
}

namespace
{

/* Returns a stream that has begun an operation, so that it need not be looked up: the streams of a
 * graph are in no list. */
Stream *
begun (cudaStream_t stream)
{
  return stream != nullptr && stream != (cudaStream_t)1 ? stream : stream_of (stream);
}

}

gboolean
fake_order_read (cudaStream_t stream, const void *at, size_t bytes)
{
  return begun (stream)->ops.back ().read (at, bytes);
}

gboolean
fake_order_write (cudaStream_t stream, void *at, size_t bytes)
{
  return begun (stream)->ops.back ().write (at, bytes);
}

void
fake_order_end (cudaStream_t stream)
{
  begun (stream)->ops.pop_back ();
  unlock_runtime ();
}

void
fake_order_meet (const cudaStream_t *streams, guint n_streams)
{
  Clock all;

  for (guint i = 0; i < n_streams; i++)
    all.join (stream_of (streams[i])->clock);
  for (guint i = 0; i < n_streams; i++)
    stream_of (streams[i])->clock.join (all);
}

void
fake_order_pass (const cudaStream_t *from, const cudaStream_t *to, guint n)
{
  std::vector<Clock> sent;

  for (guint i = 0; i < n; i++)
    sent.push_back (stream_of (from[i])->clock);
  for (guint i = 0; i < n; i++)
    stream_of (to[i])->clock.join (sent[i]);
}

cudaError_t
fake_order_run (cudaStream_t stream, const char *name, FakeOrderWork work, const void *closure,
                size_t bytes)
{
  Lock lock;
  std::vector<guint8> copy ((const guint8 *)closure, (const guint8 *)closure + bytes);

  return submit (stream, name, [=] (Op &op) mutable {
    cudaError_t error;

    op.stream->ops.push_back (op);
    error = work (op.stream, copy.data ());
    op.stream->ops.pop_back ();
    return error;
  });
}

cudaError_t
fake_order_fails (void)
{
  Lock lock;
  cudaError_t error;

  return fails (&error) ? error : cudaSuccess;
}

void
fake_order_host_use (const char *name, const void *at, size_t bytes, gboolean is_write)
{
  Lock lock;
  const std::string what = std::string ("the host's ") + name + (is_write ? " writes " : " reads ");
  const Clock &known = host_clock ();
  Allocation *allocation = bytes > 0 ? find (at) : nullptr;
  size_t from;

  if (bytes == 0)
    return;
  if (allocation == nullptr || allocation->is_freed || allocation->part != HOST)
    {
      report (what + std::to_string (bytes) + " bytes of memory that is not pinned");
      return;
    }
  from = (size_t)((const guint8 *)at - allocation->at);
  if (from > allocation->bytes || bytes > allocation->bytes - from)
    {
      report (what + bytes_of (*allocation, from, from + bytes) + ": beyond its end");
      return;
    }
  auto last = split (allocation->cells, from + bytes);
  for (auto cell = split (allocation->cells, from); cell != last; ++cell)
    {
      std::vector<Access> users = { cell->second.writer };

      if (is_write)
        users.insert (users.end (), cell->second.readers.begin (), cell->second.readers.end ());
      for (const Access &user : users)
        if (!known.knows (user.stream, user.epoch))
          report (what + bytes_of (*allocation, cell->first, cell->second.end) + ", which "
                  + name_of (user) + " may still use");
    }
}

void
fake_order_host_give (const void *what)
{
  Lock lock;

  given[what].join (host_clock ());
}

void
fake_order_host_take (const void *what)
{
  Lock lock;

  host_learns (given[what]);
}

void
fake_order_made (const void *object, const char *kind)
{
  Lock lock;

  runtime.left[object] = { kind, nullptr };
}

gboolean
fake_order_gone (const void *object, const char *kind)
{
  Lock lock;
  auto found = runtime.left.find (object);

  if (found != runtime.left.end () && found->second.kind == kind)
    {
      runtime.left.erase (found);
      return TRUE;
    }
  report (std::string ("a ") + kind + " that is not there is destroyed");
  return FALSE;
}

void
fake_order_report (const char *format, ...)
{
  Lock lock;
  va_list args;

  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  report (text);
}

void
fake_order_log (const char *format, ...)
{
  Lock lock;
  va_list args;

  va_start (args, format);
  g_autofree char *line = g_strdup_vprintf (format, args);
  va_end (args);
  add_to_log ("%s", line);
}

guint
fake_order_stream (cudaStream_t stream)
{
  Lock lock;

  return stream_of (stream)->number;
}

int
fake_order_device (cudaStream_t stream)
{
  Lock lock;

  return (int)stream_of (stream)->device;
}
