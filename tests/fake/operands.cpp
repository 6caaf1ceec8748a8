/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what an op declares that it uses with what its kernels, products and graphs are seen to
 * use: a wrong stride stays within the arena that all buffers share, so only this comparison finds
 * it. What an op has captured is compared in the same way at every launch. */
#include "config.h"

#include "tests/fake/device.hpp"
#include "tests/fake/watch.h"

#include <algorithm>
#include <mutex>

namespace fake
{

namespace
{

struct Operand
{
  std::string name;
  const guint8 *begin, *end;
  bool is_read, is_written, is_whole;
  std::vector<bool>
      left; /* bytes that the op has not used yet; all those behind the vector's end are unused */
};

/* Memory for such vectors, kept for the next op: mapping pages anew takes longer than all else
 * here. It is never freed, since a watched op may be freed last of all. */
struct Spare
{
  std::mutex mutex;
  std::vector<std::vector<bool>> left;
} &spare = *new Spare;

std::vector<bool>
take_spare ()
{
  std::lock_guard<std::mutex> guard (spare.mutex);
  std::vector<bool> left;

  if (!spare.left.empty ())
    {
      left.swap (spare.left.back ());
      spare.left.pop_back ();
    }
  return left;
}

}

struct Watched
{
  std::string op;
  std::vector<Operand> operands;
  bool has_run = false; /* captured operations run later */

  ~Watched ()
  {
    std::lock_guard<std::mutex> guard (spare.mutex);

    for (auto operand = operands.rbegin (); operand != operands.rend (); ++operand)
      {
        operand->left.clear ();
        spare.left.push_back (std::move (operand->left));
      }
  }
};

namespace
{

thread_local std::shared_ptr<Watched> watched; /* NULL: no op is watched */

bool
shares_allocation (const Operand &operand, const Allocation &allocation)
{
  return operand.begin >= allocation.at && operand.begin < allocation.at + allocation.bytes;
}

/* Describes, for a report, the operand that ends last before an address. */
std::string
nearest (const guint8 *at)
{
  const Operand *found = nullptr;

  for (const Operand &operand : watched->operands)
    if (operand.begin <= at && (found == nullptr || operand.end > found->end))
      found = &operand;
  return found == nullptr ? "it lies before all of its operands"
         : at >= found->end
             ? found->name + " ends " + std::to_string (at - found->end) + " bytes before"
             : found->name + (found->is_written ? " has not been written yet" : " is read alone");
}

/* How many bytes from `at` on one operand allows the access, where a read of a result has to come
 * after its write; 0: no operand allows it. */
size_t
allowed (const guint8 *at, size_t bytes, bool is_write)
{
  for (Operand &operand : watched->operands)
    if (at >= operand.begin && at < operand.end && (!is_write || operand.is_written))
      {
        size_t from = (size_t)(at - operand.begin), n = MIN (bytes, (size_t)(operand.end - at));

        if (operand.left.size () < from + n)
          operand.left.resize (from + n, true);
        auto first = operand.left.begin () + (ptrdiff_t)from;

        if (!is_write && !operand.is_read)
          n = (size_t)(std::find (first, first + (ptrdiff_t)n, true) - first);
        else
          std::fill_n (first, n, false);
        if (n > 0)
          return n;
      }
  return 0;
}

}

void
check_operands (const Op &op, const Allocation &allocation, const void *at, size_t bytes,
                bool is_write)
{
  const guint8 *next = (const guint8 *)at;
  bool is_shared = false;

  if (watched == nullptr)
    return;
  for (const Operand &operand : watched->operands)
    is_shared |= shares_allocation (operand, allocation);
  watched->has_run = true;
  while (is_shared && bytes > 0)
    {
      size_t n = allowed (next, bytes, is_write), from = (size_t)(next - allocation.at);

      if (n == 0)
        {
          report ("op " + watched->op + ": " + name_of (op.self)
                  + (is_write ? " writes " : " reads ") + bytes_of (allocation, from, from + bytes)
                  + ", which is no operand's: " + nearest (next));
          return;
        }
      next += n;
      bytes -= n;
    }
}

std::shared_ptr<Watched>
watch (std::shared_ptr<Watched> next)
{
  watched.swap (next);
  return next;
}

std::shared_ptr<Watched>
watched_now ()
{
  return watched;
}

void
watch_again (Watched &self)
{
  self.has_run = false;
  for (Operand &operand : self.operands)
    operand.left.clear ();
}

void
check_whole (const Watched &self)
{
  for (const Operand &operand : self.operands)
    {
      const guint64 known = operand.left.size ();
      guint64 left = operand.is_whole ? (guint64)(operand.end - operand.begin) - known : 0;
      guint64 first = known;

      for (size_t i = operand.is_whole ? known : 0; i-- > 0;)
        if (operand.left[i])
          {
            left++;
            first = i;
          }
      if (left > 0 && self.has_run)
        report ("op " + self.op + ": " + std::to_string (left) + " bytes of " + operand.name
                + (operand.is_written ? " are never written" : " are never read")
                + ", the first at " + std::to_string (first));
    }
}

}

using namespace fake;

void
fake_watch_begin (const char *op, const FakeOperand *operands, guint n)
{
  auto made = std::make_shared<Watched> ();

  made->op = op;
  for (guint i = 0; i < n; i++)
    {
      const FakeOperand &from = operands[i];
      const guint8 *at = (const guint8 *)from.at;

      made->operands.push_back ({ from.name, at, at + from.bytes, from.is_read != FALSE,
                                  from.is_written != FALSE, from.is_whole != FALSE,
                                  take_spare () });
    }
  watch_again (*made);
  watch (made);
}

void
fake_watch_end (gboolean is_done)
{
  Lock lock;

  if (is_done)
    check_whole (*watched);
  watch (nullptr);
}
