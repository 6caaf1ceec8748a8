/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/cuda-fake.h"

#include <string>
#include <ucontext.h>
#include <vector>

#if defined __SANITIZE_ADDRESS__
#define HAVE_ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* The linker's names for the ends of all shared variables; absent without any. */
extern "C" char __start_fake_cuda_shared[] __attribute__ ((weak));
extern "C" char __stop_fake_cuda_shared[] __attribute__ ((weak));

namespace
{

const size_t STACK_BYTES = 128 * 1024;

enum State
{
  NEW, /* not begun */
  READY,
  AT_BARRIER,
  AT_SHUFFLE,
  DONE
};

/* A stack that runs threads of the block to their ends, one after the other, until one waits: then
 * it is that thread's until it goes on. Kernels that never wait so need one fiber alone. */
struct Fiber
{
  ucontext_t context;
  std::vector<char> stack = std::vector<char> (STACK_BYTES);
  void *asan = nullptr;
};

struct Thread
{
  State state = NEW;
  int line = 0; /* of the source, where it waits */
  guint32 mask = 0, value = 0;
  unsigned source = 0;
  Fiber *fiber = nullptr;
};

struct Device
{
  std::string log, error;
  bool backwards = false;
  ucontext_t scheduler;
  const void *scheduler_stack = nullptr; /* for the address sanitizer */
  size_t scheduler_bytes = 0;
  std::vector<Fiber *> idle;
  std::vector<Thread> threads; /* of the block that runs */
  size_t begun = 0, end = 0;   /* threads begun, and how many may be, in the order of running */
  unsigned current = 0;
  FakeCudaThread body = nullptr;
  const void *closure = nullptr;

  ~Device ()
  {
    for (Fiber *fiber : idle)
      delete fiber;
  }
} device;

/* --- fibers ------------------------------------------------------------------------------- */

/* Leaves the scheduler for a fiber, and returns when that waits or has nothing to do. */
void
enter (Fiber *fiber)
{
#ifdef HAVE_ASAN
  void *own = nullptr;

  __sanitizer_start_switch_fiber (&own, fiber->stack.data (), STACK_BYTES);
  swapcontext (&device.scheduler, &fiber->context);
  __sanitizer_finish_switch_fiber (own, nullptr, nullptr);
#else
  swapcontext (&device.scheduler, &fiber->context);
#endif
}

void
arrive (void *asan)
{
#ifdef HAVE_ASAN
  __sanitizer_finish_switch_fiber (asan, &device.scheduler_stack, &device.scheduler_bytes);
#endif
}

void
leave (Fiber *fiber)
{
#ifdef HAVE_ASAN
  __sanitizer_start_switch_fiber (&fiber->asan, device.scheduler_stack, device.scheduler_bytes);
#endif
  swapcontext (&fiber->context, &device.scheduler);
  arrive (fiber->asan);
}

/* The thread that comes i-th. */
unsigned
in_order (size_t i)
{
  return (unsigned)(device.backwards ? device.threads.size () - 1 - i : i);
}

void
select (unsigned thread)
{
  device.current = thread;
  threadIdx = dim3 (thread % blockDim.x, thread / blockDim.x % blockDim.y,
                    thread / blockDim.x / blockDim.y);
}

void
run_threads (unsigned high, unsigned low)
{
  Fiber *self = (Fiber *)((guintptr)high << 32 | low);

  arrive (nullptr);
  for (;;)
    {
      while (device.begun < device.end)
        {
          unsigned thread = in_order (device.begun++);

          device.threads[thread].fiber = self;
          select (thread);
          device.body (device.closure);
          device.threads[thread].state = DONE;
        }
      device.idle.push_back (self);
      leave (self);
    }
}

Fiber *
take_fiber ()
{
  Fiber *fiber;

  if (!device.idle.empty ())
    {
      fiber = device.idle.back ();
      device.idle.pop_back ();
      return fiber;
    }
  fiber = new Fiber;
  getcontext (&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.data ();
  fiber->context.uc_stack.ss_size = STACK_BYTES;
  fiber->context.uc_link = nullptr;
  makecontext (&fiber->context, (void (*) ())run_threads, 2,
               (unsigned)((guint64)(guintptr)fiber >> 32), (unsigned)(guintptr)fiber);
  return fiber;
}

/* The current thread waits for others. */
void
wait (State state, int line)
{
  unsigned thread = device.current;
  Fiber *fiber = device.threads[thread].fiber;

  device.threads[thread].state = state;
  device.threads[thread].line = line;
  leave (fiber);
  select (thread);
}

/* --- a block ------------------------------------------------------------------------------ */

bool
everyone (State state)
{
  for (const Thread &thread : device.threads)
    if (thread.state != state || thread.line != device.threads[0].line)
      return false;
  return true;
}

/* Whether the lanes of the mask of warp `first` / 32 all wait at the same shuffle. */
bool
shuffle_is_complete (size_t first, const Thread &like)
{
  for (size_t lane = 0; lane < 32; lane++)
    if (like.mask >> lane & 1)
      {
        if (first + lane >= device.threads.size ())
          return false;
        const Thread &other = device.threads[first + lane];
        if (other.state != AT_SHUFFLE || other.line != like.line || other.mask != like.mask)
          return false;
      }
  return true;
}

/* Gives every lane of the mask its value. A source outside of the mask has none: 0xdeadbeef. */
void
shuffle (size_t first, guint32 mask)
{
  guint32 values[32];

  for (size_t lane = 0; lane < 32; lane++)
    values[lane] = mask >> lane & 1 ? device.threads[first + lane].value : 0xdeadbeef;
  for (size_t lane = 0; lane < 32; lane++)
    if (mask >> lane & 1)
      {
        Thread &thread = device.threads[first + lane];

        thread.value = values[thread.source];
        thread.state = READY;
      }
}

/* Lets go those of warp `first` / 32 that wait for nobody any more. */
bool
release_shuffles (size_t first)
{
  bool released = false;

  for (size_t lane = 0; lane < 32 && first + lane < device.threads.size (); lane++)
    {
      const Thread &thread = device.threads[first + lane];

      if (thread.state == AT_SHUFFLE && thread.mask >> lane & 1
          && shuffle_is_complete (first, thread))
        {
          shuffle (first, thread.mask);
          released = true;
        }
    }
  return released;
}

bool
release_barrier ()
{
  if (!everyone (AT_BARRIER))
    return false;
  for (Thread &thread : device.threads)
    thread.state = READY;
  return true;
}

/* Runs the warp of the threads that come at `from` up to `end` as far as it gets without others. */
void
run_warp (size_t from, size_t end)
{
  device.end = end;
  do
    {
      for (size_t i = from; i < end; i++)
        if (device.threads[in_order (i)].state == READY)
          enter (device.threads[in_order (i)].fiber);
      while (device.begun < end)
        enter (take_fiber ());
    }
  while (release_shuffles (in_order (from) / 32 * 32));
}

/* Says where the threads are that can never go on; their stacks are given up. */
void
fail (const char *name)
{
  unsigned waiting = 0, done = 0, first = 0;

  for (unsigned i = (unsigned)device.threads.size (); i-- > 0;)
    if (device.threads[i].state == DONE)
      done++;
    else
      {
        waiting++;
        first = i;
      }
  const Thread &thread = device.threads[first];
  g_autofree char *text = g_strdup_printf (
      "%s, block %u %u: thread %u waits for ever at a %s; %u threads wait, %u have ended", name,
      blockIdx.x, blockIdx.y, first, thread.state == AT_BARRIER ? "barrier" : "shuffle", waiting,
      done);
  if (device.error.empty ())
    device.error = text;
  for (const Thread &other : device.threads)
    if (other.state != DONE)
      delete other.fiber;
}

bool
run_block (const char *name)
{
  device.threads.assign ((size_t)blockDim.x * blockDim.y * blockDim.z, Thread ());
  device.begun = 0;
  if (__start_fake_cuda_shared != nullptr)
    memset (__start_fake_cuda_shared, 0xff,
            (size_t)(__stop_fake_cuda_shared - __start_fake_cuda_shared));
  do
    for (size_t from = 0, end = 0; from < device.threads.size (); from = end)
      {
        while (end < device.threads.size () && in_order (end) / 32 == in_order (from) / 32)
          end++;
        run_warp (from, end);
      }
  while (release_barrier ());
  for (const Thread &thread : device.threads)
    if (thread.state != DONE)
      {
        fail (name);
        return false;
      }
  return true;
}

void
add_to_log (char *line)
{
  device.log += line;
  g_free (line);
}

}

/* --- the interface ------------------------------------------------------------------------ */

void
fake_cuda_barrier (int line)
{
  wait (AT_BARRIER, line);
}

guint32
fake_cuda_shuffle (int line, guint32 mask, guint32 value, guint source)
{
  Thread &thread = device.threads[device.current];

  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  wait (AT_SHUFFLE, line);
  return thread.value;
}

cudaError_t
fake_cuda_run (const char *name, dim3 grid, dim3 block, void *stream, FakeCudaThread thread,
               const void *closure)
{
  add_to_log (g_strdup_printf ("%s grid %u %u block %u shared 0 stream %p\n", name, grid.x, grid.y,
                               block.x, stream));
  if (grid.x == 0 || grid.y == 0 || grid.y > 65535 || grid.z != 1 || block.x * block.y == 0
      || block.z != 1 || block.x * block.y > 1024)
    return cudaErrorInvalidValue;
  gridDim = grid;
  blockDim = block;
  device.body = thread;
  device.closure = closure;
  for (unsigned y = 0; y < grid.y; y++)
    for (unsigned x = 0; x < grid.x; x++)
      {
        blockIdx = dim3 (x, y);
        if (!run_block (name))
          return cudaErrorLaunchFailure;
      }
  return cudaSuccess;
}

cudaError_t
cudaMemsetAsync (void *at, int byte, size_t size, cudaStream_t stream)
{
  add_to_log (g_strdup_printf ("memset %zu stream %p\n", size, (void *)stream));
  memset (at, byte, size);
  return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync (void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
  add_to_log (g_strdup_printf ("memcpy %zu stream %p\n", size, (void *)stream));
  memmove (to, from, size);
  return cudaSuccess;
}

void
fake_cuda_reset (void)
{
  device.log.clear ();
  device.error.clear ();
  device.backwards = false;
}

const char *
fake_cuda_log (void)
{
  return device.log.c_str ();
}

const char *
fake_cuda_error (void)
{
  return device.error.c_str ();
}

void
fake_cuda_run_backwards (gboolean backwards)
{
  device.backwards = backwards;
}
