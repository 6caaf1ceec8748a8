/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime from inside: one lock, one region of addresses that devices and pinned memory
 * lie in, streams with clocks, and allocations that know who used each of their bytes last. */
#pragma once
#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cuda_runtime_api.h"
#include "tests/fake/order.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct CUstream_st;
struct FakeCudaLaunch;

namespace fake
{

const unsigned MAX_DEVICES = 8;
const unsigned HOST = MAX_DEVICES; /* the part of the region where pinned memory is */
const size_t PART_BYTES = (size_t)8 << 30;
const size_t PAGE = 4096;

/* --- order -------------------------------------------------------------------------------- */

/* How far into each stream something has seen: `at[stream]` operations. */
struct Clock
{
  std::vector<guint64> at;

  void join (const Clock &other);
  bool knows (unsigned stream, guint64 epoch) const;
};

/* The operation that used a byte: the epoch-th of a stream; `number` is its place in the list of
 * names. */
struct Access
{
  unsigned stream = 0;
  guint64 epoch = 0; /* 0: none */
  unsigned number = 0;

  bool operator== (const Access &other) const;
};

/* Bytes with one history, up to `end`; they begin where the map says. */
struct Cell
{
  size_t end;
  Access writer;
  std::vector<Access> readers; /* since then, one a stream */
};

struct Allocation
{
  unsigned number, part;
  guint8 *at;
  size_t bytes;
  bool is_freed = false;
  std::map<size_t, Cell> cells;
};

struct Graph;

/* An operation as it runs. */
struct Op
{
  CUstream_st *stream;
  Access self;

  /* FALSE: not memory that this device may touch. */
  bool read (const void *at, size_t bytes);
  bool write (void *at, size_t bytes);
};

}

struct CUstream_st
{
  unsigned number, device;
  unsigned flags = 0;
  int priority = 0;
  bool is_destroyed = false, is_stalled = false;
  bool is_of_graph = false;      /* made for a launched graph alone */
  CUstream_st *behind = nullptr; /* the stalled one that it waits for */
  unsigned queued = 0;           /* operations behind that */
  fake::Clock clock;
  std::vector<fake::Op> ops;            /* begun and not ended */
  std::shared_ptr<fake::Graph> capture; /* NULL: not capturing */
};

struct CUevent_st
{
  unsigned number, device, flags;
  bool is_recorded = false, is_destroyed = false;
  CUstream_st *behind = nullptr; /* as that of a stream */
  double time_ms = 0;
  fake::Clock clock;
  std::shared_ptr<fake::Graph>
      capture; /* recorded into this graph, as its slot-th event; NULL: not captured */
  unsigned slot = 0;
};

namespace fake
{

typedef CUstream_st Stream;
typedef CUevent_st Event;

typedef std::function<cudaError_t (Op &op)> Work;

struct Machine
{
  unsigned devices = 1;
  size_t bytes = (size_t)2 << 30;
  int major = 9, minor = 0;
  int driver = CUDART_VERSION; /* the newest CUDA that it is for */
};

struct Device
{
  size_t used = 0, next = 0; /* bytes taken; where the next allocation goes */
  unsigned peers = 0;        /* devices it may reach, a bit each */
};

/* A copy between pinned memory and a device that the host does not know the end of. */
struct Pending
{
  void *host;
  std::vector<guint8> bytes; /* read from the device, or as they were when the copy began */
  bool to_host;
  Access op;
};

/* An object of another library, or a graph, that has not been destroyed. */
struct Left
{
  std::string kind;
  std::function<void ()> forget; /* frees it, if that is for the runtime to do */
};

struct Runtime
{
  Machine machine;
  Device device[MAX_DEVICES + 1];
  std::vector<std::unique_ptr<Stream>> streams; /* by number; the first are the devices' own */
  std::vector<std::unique_ptr<Event>> events;
  std::map<const void *, std::unique_ptr<Allocation>> allocations; /* by address */
  std::vector<std::string> operations;                             /* names, by number */
  std::vector<Pending> pending;
  std::map<const void *, Left> left;
  std::string log, error;
  guint64 moved = 0; /* bytes */
  cudaError_t sticky = cudaSuccess;
  unsigned allocated = 0;
  guint64 generation = 0; /* resets so far */
  gint64 fails_in = 0;    /* calls until one fails; 0: none does */
  cudaError_t failure = cudaSuccess;
  bool guards = false;
};

extern Runtime runtime;

/* Holds the runtime: one operation at a time, whichever thread asks. Device memory can be touched
 * meanwhile. */
void lock_runtime ();
void unlock_runtime ();
bool is_locked (); /* for assertions of the thread that should hold it */
struct Lock
{
  Lock () { lock_runtime (); }
  ~Lock () { unlock_runtime (); }
};

/* order.cpp */
void report (const std::string &text); /* the first stays */
void add_to_log (const char *format, ...) G_GNUC_PRINTF (1, 2);
Clock &host_clock ();
void host_learns (const Clock &clock);
Op begin (Stream *stream, const std::string &name);
std::string name_of (const Access &access);
std::string bytes_of (const Allocation &allocation, size_t from, size_t to);
bool touch (Op &op, const void *at, size_t bytes, bool is_write);
void check_unused (Allocation &allocation, const char *by);

void forget_clocks ();

/* operands.cpp. A thread may watch one op at a time: a use of memory that is not among its operands
 * is reported. `watch` begins to watch another op (NULL: none) and returns the one before;
 * watch_again forgets which bytes were used, for a repetition; check_whole reports operands of
 * which not all bytes were used though the op must use them all. */
struct Watched;
void check_operands (const Op &op, const Allocation &allocation, const void *at, size_t bytes,
                     bool is_write);
std::shared_ptr<Watched> watch (std::shared_ptr<Watched> next);
std::shared_ptr<Watched> watched_now ();
void watch_again (Watched &self);
void check_whole (const Watched &self);

/* Remembers an object, which its owner must report to fake_order_gone before it deletes it; what is
 * left is a leak, and is deleted by a reset. */
template <typename T>
void
made (T *object, const char *kind)
{
  runtime.left[object] = { kind, [=] { delete object; } };
}
void forget_left ();

/* memory.cpp */
Allocation *find (const void *at);
void map_region ();
/* Makes these bytes that value. */
void fill (guint8 *at, guint8 byte, size_t bytes);
void open_memory (bool open);
void forget_memory ();
void settle (const Clock &known); /* ends copies that the host now knows the end of */
void check_memory ();             /* redzones and leaks */

/* stream.cpp */
Stream *stream_of (cudaStream_t stream); /* NULL, and a report: there is none */
bool is_capturing (cudaStream_t stream);
Stream *stalled (Stream *stream); /* what it waits for without end, perhaps itself, or NULL */
void queue_up (Stream *stream);
cudaError_t hangs (const char *what); /* the host waits for something that is stalled */
bool
forbids (cudaError_t *out_error); /* a call that must not be made while something is captured */
cudaError_t submit (cudaStream_t stream, const std::string &name, Work work,
                    const std::string &details = "");
void make_streams ();
void forget_streams ();
void check_streams ();

/* runtime.cpp */
cudaError_t result (cudaError_t error); /* remembers it for cudaGetLastError */
bool fails (cudaError_t *out_error);    /* as a test asked for, or since a kernel went wrong */
unsigned current_device ();
void call_back (cudaHostFn_t function, void *data);

/* trace.cpp */
void trace_map (void *at, size_t bytes);
void trace_live (const void *at, size_t bytes, bool is_live);
void trace_begin (const void *stacks, size_t stack_bytes, const void *closure,
                  size_t closure_bytes);
void trace_threads (bool run);
bool trace_end (Op &op);

/* races.cpp: nothing is looked for unless a test asks. Calls say what runs now. */
void races_map (void *at, size_t bytes);
void races_find (bool find);
void races_begin (const void *dynamic_shared);
void races_block ();
void races_barrier ();
void races_sync_warp (unsigned warp);
void races_thread (unsigned number);
void races_use (const void *memory, size_t bytes, bool writes);

/* ptx-launch.cpp: a function of this program begins, which may be a kernel that runs as PTX. */
void ptx_enter (const void *function);
void ptx_begin_block ();

/* cuda-fake.cpp */
std::string where_kernel_is ();             /* its name, the block and the thread that runs */
void blame_kernel (const std::string &why); /* the thread that runs, before it is stopped */
G_NORETURN void stop_kernel ();
G_NORETURN void end_thread (); /* of a kernel, from within what it called */
const FakeCudaLaunch &launch_now ();
void forget_kernels ();
void set_backwards (bool backwards);

}
