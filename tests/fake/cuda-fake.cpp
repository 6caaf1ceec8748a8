/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: blocks one after the other, their threads as fibers. */
#include "config.h"

#undef _FORTIFY_SOURCE /* its longjmp refuses to change stacks */

#include "tests/fake/device.hpp"

#include <csetjmp>
#include <cstring>
#include <string>
#include <sys/mman.h>
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
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

using namespace fake;

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* The linker's names for the two ends of all shared variables; both are absent where there are
 * none. */
extern "C" char __start_fake_cuda_shared[] __attribute__ ((weak));
extern "C" char __stop_fake_cuda_shared[] __attribute__ ((weak));

namespace
{

const size_t STACK_BYTES = 128 * 1024;
const unsigned MAX_THREADS = 1024; /* of a block, and so the most fibers at a time */
const size_t MAX_SHARED = 227 * 1024;
const size_t SCRATCH_BYTES = MAX_THREADS * STACK_BYTES + MAX_SHARED;

enum State
{
  NEW, /* not begun */
  READY,
  AT_BARRIER,
  AT_SHUFFLE,
  STOPPED, /* did what makes a device's launch fail */
  DONE
};

/* Where a stack continues: a ucontext the first time, then a jump, which makes no system calls. It
 * is the compiler's own jump, as the address sanitizer clears the marks of a whole stack at each of
 * the library's. */
struct Context
{
  ucontext_t begin;
  void *next[5];
  bool has_begun = false;
};

/* A stack that runs threads of the block to their ends, one after the other, until one of them
 * waits: then the stack belongs to that thread until it continues. Kernels that never wait
 * therefore need one fiber alone. */
struct Fiber
{
  Context context;
  jmp_buf end; /* of the thread that it runs */
  guint8 *stack;
  void *asan = nullptr;
};

struct Thread
{
  State state = NEW;
  int line = 0;       /* the source line at which it waits */
  bool syncs = false; /* whether the shuffle is a __syncwarp */
  guint32 mask = 0, value = 0;
  unsigned source = 0;
  Fiber *fiber = nullptr;
};

struct Processor
{
  bool backwards = false;
  guint8 *scratch = nullptr; /* the stacks of all fibers, and dynamic shared memory, in one piece */
  std::vector<std::unique_ptr<Fiber>> fibers;
  Context scheduler;
  const void *scheduler_stack = nullptr; /* for the address sanitizer */
  size_t scheduler_bytes = 0;
  std::vector<Fiber *> idle;
  std::vector<Thread> threads; /* of the block that is running */
  size_t begun = 0,
         end
         = 0; /* threads that have begun, and how many may begin, counted in the order of running */
  unsigned current = 0;
  const FakeCudaLaunch *launch = nullptr;
  std::string why; /* the error of the thread that ends the launch */
} processor;

/* --- fibers ------------------------------------------------------------------------------- */

void __attribute__ ((noinline, no_sanitize ("address"))) change (Context &from, Context &to)
{
  from.has_begun = true;
  if (__builtin_setjmp (from.next) != 0)
    return;
  if (to.has_begun)
    __builtin_longjmp (to.next, 1);
  setcontext (&to.begin);
}

/* Switches from the scheduler to a fiber, and returns when that waits or has nothing left to do. */
void
enter (Fiber *fiber)
{
  trace_threads (true);
#ifdef HAVE_ASAN
  void *own = nullptr;

  __sanitizer_start_switch_fiber (&own, fiber->stack, STACK_BYTES);
  change (processor.scheduler, fiber->context);
  __sanitizer_finish_switch_fiber (own, nullptr, nullptr);
#else
  change (processor.scheduler, fiber->context);
#endif
  trace_threads (false);
}

void
arrive (void *asan)
{
#ifdef HAVE_ASAN
  __sanitizer_finish_switch_fiber (asan, &processor.scheduler_stack, &processor.scheduler_bytes);
#endif
}

void
leave (Fiber *fiber)
{
#ifdef HAVE_ASAN
  __sanitizer_start_switch_fiber (&fiber->asan, processor.scheduler_stack,
                                  processor.scheduler_bytes);
#endif
  change (fiber->context, processor.scheduler);
  arrive (fiber->asan);
}

/* The thread that is i-th in the order of running. */
unsigned
in_order (size_t i)
{
  return (unsigned)(processor.backwards ? processor.threads.size () - 1 - i : i);
}

void
select (unsigned thread)
{
  processor.current = thread;
  races_thread (thread);
  if (thread < blockDim.x)
    threadIdx = dim3 (thread, 0, 0);
  else
    threadIdx = dim3 (thread % blockDim.x, thread / blockDim.x, 0);
}

void
run_threads (unsigned high, unsigned low)
{
  Fiber *self = (Fiber *)((guintptr)high << 32 | low);

  arrive (nullptr);
  for (;;)
    {
      while (processor.begun < processor.end)
        {
          unsigned thread = in_order (processor.begun++);

          processor.threads[thread].fiber = self;
          select (thread);
          if (_setjmp (self->end) == 0)
            processor.launch->thread (processor.launch->closure);
          processor.threads[processor.current].state = DONE;
        }
      processor.idle.push_back (self);
      leave (self);
    }
}

Fiber *
take_fiber ()
{
  Fiber *fiber;

  if (!processor.idle.empty ())
    {
      fiber = processor.idle.back ();
      processor.idle.pop_back ();
      return fiber;
    }
  g_assert (processor.fibers.size () < MAX_THREADS);
  processor.fibers.push_back (std::make_unique<Fiber> ());
  fiber = processor.fibers.back ().get ();
  fiber->stack = processor.scratch + (processor.fibers.size () - 1) * STACK_BYTES;
#ifdef HAVE_ASAN
  ASAN_UNPOISON_MEMORY_REGION (fiber->stack, STACK_BYTES); /* the fiber may never have ended */
#endif
  ucontext_t *begin = &fiber->context.begin;
  getcontext (begin);
  begin->uc_stack.ss_sp = fiber->stack;
  begin->uc_stack.ss_size = STACK_BYTES;
  begin->uc_link = nullptr;
  makecontext (begin, (void (*) ())run_threads, 2, (unsigned)((guint64)(guintptr)fiber >> 32),
               (unsigned)(guintptr)fiber);
  return fiber;
}

/* Makes the current thread wait for others. */
void
wait (State state, int line)
{
  unsigned thread = processor.current;
  Fiber *fiber = processor.threads[thread].fiber;

  processor.threads[thread].state = state;
  processor.threads[thread].line = line;
  leave (fiber);
  select (thread);
}

/* --- a block ------------------------------------------------------------------------------ */

bool
everyone (State state)
{
  for (const Thread &thread : processor.threads)
    if (thread.state != state || thread.line != processor.threads[0].line)
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
        if (first + lane >= processor.threads.size ())
          return false;
        const Thread &other = processor.threads[first + lane];
        if (other.state != AT_SHUFFLE || other.line != like.line || other.mask != like.mask)
          return false;
      }
  return true;
}

/* Gives every lane of the mask its value; 0xdeadbeef where the source lane is outside of the
 * mask. */
void
shuffle (size_t first, guint32 mask)
{
  guint32 values[32];

  for (size_t lane = 0; lane < 32; lane++)
    values[lane] = mask >> lane & 1 ? processor.threads[first + lane].value : 0xdeadbeef;
  for (size_t lane = 0; lane < 32; lane++)
    if (mask >> lane & 1)
      {
        Thread &thread = processor.threads[first + lane];

        thread.value = values[thread.source];
        thread.state = READY;
      }
}

/* Lets threads of warp `first` / 32 continue that wait for no others any more. Returns whether
 * there were any. */
bool
release_shuffles (size_t first)
{
  bool released = false;

  for (size_t lane = 0; lane < 32 && first + lane < processor.threads.size (); lane++)
    {
      const Thread &thread = processor.threads[first + lane];

      if (thread.state == AT_SHUFFLE && thread.mask >> lane & 1
          && shuffle_is_complete (first, thread))
        {
          if (thread.syncs)
            races_sync_warp ((unsigned)(first / 32));
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
  for (Thread &thread : processor.threads)
    thread.state = READY;
  races_barrier ();
  return true;
}

/* Runs the warp of threads `from` to `end`, in the order of running, until it needs other warps. */
void
run_warp (size_t from, size_t end)
{
  processor.end = end;
  do
    {
      for (size_t i = from; i < end && processor.why.empty (); i++)
        if (processor.threads[in_order (i)].state == READY)
          enter (processor.threads[in_order (i)].fiber);
      while (processor.begun < end && processor.why.empty ())
        enter (take_fiber ());
    }
  while (processor.why.empty () && release_shuffles (in_order (from) / 32 * 32));
}

/* Reports where the threads are that can never continue, and gives up all stacks. */
void
fail (const char *name)
{
  unsigned waiting = 0, done = 0, first = 0;
  std::string at = std::string (name) + ", block " + std::to_string (blockIdx.x) + " "
                   + std::to_string (blockIdx.y) + ": thread ";

  for (unsigned i = (unsigned)processor.threads.size (); i-- > 0;)
    if (processor.threads[i].state == DONE)
      done++;
    else
      {
        waiting++;
        first = i;
      }
  if (!processor.why.empty ())
    report (at + std::to_string (processor.current) + " " + processor.why);
  else
    report (at + std::to_string (first) + " waits for ever at a "
            + (processor.threads[first].state == AT_BARRIER ? "barrier; " : "shuffle; ")
            + std::to_string (waiting) + " threads wait, " + std::to_string (done) + " have ended");
  forget_kernels ();
}

bool
run_block (const char *name)
{
  processor.threads.assign ((size_t)blockDim.x * blockDim.y * blockDim.z, Thread ());
  processor.begun = 0;
  races_block ();
  ptx_begin_block ();
  memset (fake_cuda_dynamic_shared (), 0xff, processor.launch->shared);
  if (__start_fake_cuda_shared != nullptr)
    memset (__start_fake_cuda_shared, 0xff,
            (size_t)(__stop_fake_cuda_shared - __start_fake_cuda_shared));
  do
    for (size_t from = 0, end = 0; from < processor.threads.size () && processor.why.empty ();
         from = end)
      {
        while (end < processor.threads.size () && in_order (end) / 32 == in_order (from) / 32)
          end++;
        run_warp (from, end);
      }
  while (processor.why.empty () && release_barrier ());
  for (const Thread &thread : processor.threads)
    if (thread.state != DONE)
      {
        fail (name);
        return false;
      }
  return true;
}

bool
is_launchable (const FakeCudaLaunch &launch)
{
  const dim3 &grid = launch.grid, &block = launch.block;

  return grid.x > 0 && grid.x <= G_MAXINT32 && grid.y > 0 && grid.y <= 65535 && grid.z == 1
         && block.x * block.y > 0 && block.z == 1 && block.x * block.y <= MAX_THREADS
         && launch.shared <= MAX_SHARED;
}

void
map_scratch ()
{
  if (processor.scratch == nullptr)
    processor.scratch = (guint8 *)mmap (nullptr, SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (processor.scratch == MAP_FAILED)
    g_error ("no memory for the stacks of a fake device");
}

/* Runs a launch. The error is that of the first block that does not end, or of memory that the
 * blocks used. */
cudaError_t
run_launch (Op &op, const FakeCudaLaunch &launch)
{
  bool is_done = true;

  gridDim = launch.grid;
  blockDim = launch.block;
  processor.launch = &launch;
  processor.why.clear ();
  map_scratch ();
  trace_begin (processor.scratch, SCRATCH_BYTES, launch.closure, launch.closure_bytes);
  races_begin (fake_cuda_dynamic_shared ());
  for (unsigned y = 0; y < gridDim.y && is_done; y++)
    for (unsigned x = 0; x < gridDim.x && is_done; x++)
      {
        blockIdx = dim3 (x, y);
        is_done = run_block (launch.name);
      }
  if (!trace_end (op) || !processor.why.empty ())
    return cudaErrorIllegalAddress;
  return is_done ? cudaSuccess : cudaErrorLaunchFailure;
}

}

namespace fake
{

std::string
where_kernel_is ()
{
  return std::string (processor.launch->name) + ", block " + std::to_string (blockIdx.x) + " "
         + std::to_string (blockIdx.y) + ": thread " + std::to_string (processor.current);
}

void
blame_kernel (const std::string &why)
{
  processor.why = why;
}

void
stop_kernel ()
{
  wait (STOPPED, 0);
  g_assert_not_reached ();
}

const FakeCudaLaunch &
launch_now ()
{
  return *processor.launch;
}

void
end_thread ()
{
  _longjmp (processor.threads[processor.current].fiber->end, 1);
}

void
forget_kernels ()
{
  processor.idle.clear ();
  processor.fibers.clear ();
}

void
set_backwards (bool backwards)
{
  processor.backwards = backwards;
}

}

/* --- the interface ------------------------------------------------------------------------ */

void
fake_cuda_barrier (int line)
{
  wait (AT_BARRIER, line);
}

uint32_t
fake_cuda_shuffle (int line, uint32_t mask, uint32_t value, unsigned source)
{
  Thread &thread = processor.threads[processor.current];

  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  thread.syncs = false;
  wait (AT_SHUFFLE, line);
  return thread.value;
}

void
fake_cuda_sync_warp (int line)
{
  Thread &thread = processor.threads[processor.current];

  thread.mask = 0xffffffffu;
  thread.source = 0;
  thread.syncs = true;
  wait (AT_SHUFFLE, line);
}

void *
fake_cuda_dynamic_shared ()
{
  return processor.scratch + MAX_THREADS * STACK_BYTES;
}

cudaError_t
fake_cuda_run (cudaStream_t stream, const FakeCudaLaunch &launch)
{
  Lock lock;
  cudaError_t error;
  g_autofree char *details = g_strdup_printf (" grid %u %u block %u shared %zu", launch.grid.x,
                                              launch.grid.y, launch.block.x, launch.shared);

  if (fails (&error))
    return error;
  Stream *self = stream_of (stream);
  if (self == nullptr || self->device != current_device ())
    return result (cudaErrorInvalidResourceHandle);
  if (!is_launchable (launch))
    return result (cudaErrorInvalidConfiguration);
  FakeCudaLaunch copy = launch;
  std::vector<guint8> closure ((const guint8 *)launch.closure,
                               (const guint8 *)launch.closure + launch.closure_bytes);
  return submit (
      stream, launch.name,
      [=] (Op &op) mutable {
        copy.closure = closure.data ();
        return run_launch (op, copy);
      },
      details);
}
