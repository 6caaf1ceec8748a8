/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA runtime as a whole: its lock, devices, errors, and the functions for tests. */
#include "config.h"

#include "tests/fake/device.hpp"

#include <cstring>

namespace fake
{

Runtime runtime;

namespace
{

GRecMutex mutex;
unsigned depth; /* how often the thread that holds the lock has taken it */

/* Frees what is left at exit, so that a leak that was reported is not found again by the leak
 * sanitizer. */
struct AtExit
{
  ~AtExit () { forget_left (); }
} at_exit;

/* The state of a host thread. */
struct Thread
{
  guint64 generation = 0;
  unsigned device = 0;
  cudaError_t error = cudaSuccess;
  bool is_called_back = false, is_shown_one = false;
};
thread_local Thread of_thread;

Thread &
thread ()
{
  if (of_thread.generation != runtime.generation)
    {
      of_thread = Thread ();
      of_thread.generation = runtime.generation;
    }
  return of_thread;
}

void
begin_anew (const Machine &machine)
{
  guint64 generation = runtime.generation + 1;

  races_find (false);
  forget_kernels ();
  forget_memory ();
  forget_streams ();
  forget_left ();
  forget_clocks ();
  runtime = Runtime ();
  runtime.generation = generation;
  runtime.machine = machine;
  runtime.operations.push_back ("nothing");
  make_streams ();
}

}

void
lock_runtime ()
{
  g_rec_mutex_lock (&mutex);
  if (depth++ > 0)
    return;
  map_region ();
  if (runtime.generation == 0)
    begin_anew (Machine ());
  open_memory (true);
}

void
unlock_runtime ()
{
  if (--depth == 0)
    open_memory (false);
  g_rec_mutex_unlock (&mutex);
}

bool
is_locked ()
{
  return depth > 0;
}

cudaError_t
result (cudaError_t error)
{
  if (error == cudaSuccess)
    return runtime.sticky;
  thread ().error = error;
  if (error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure
      || error == cudaErrorMisalignedAddress || error == cudaErrorECCUncorrectable)
    runtime.sticky = error;
  return error;
}

bool
fails (cudaError_t *out_error)
{
  *out_error = runtime.sticky;
  if (thread ().is_called_back)
    *out_error = cudaErrorNotPermitted;
  else if (runtime.fails_in > 0 && --runtime.fails_in == 0)
    *out_error = runtime.failure;
  result (*out_error);
  return *out_error != cudaSuccess;
}

unsigned
current_device ()
{
  return thread ().device;
}

void
call_back (cudaHostFn_t function, void *data)
{
  thread ().is_called_back = true;
  function (data);
  thread ().is_called_back = false;
}

}

using namespace fake;

/* --- for tests ---------------------------------------------------------------------------- */

void
fake_cuda_reset (void)
{
  Lock lock;

  begin_anew (Machine ());
}

void
fake_cuda_set_machine (guint devices, guint64 bytes, int major, int minor)
{
  Lock lock;

  g_assert (devices <= MAX_DEVICES);
  begin_anew ({ devices, bytes, major, minor });
}

void
fake_cuda_set_driver (int version)
{
  Lock lock;

  runtime.machine.driver = version;
}

const char *
fake_cuda_log (void)
{
  Lock lock;

  return runtime.log.c_str ();
}

void
fake_cuda_clear_log (void)
{
  Lock lock;

  runtime.log.clear ();
}

guint64
fake_cuda_moved (void)
{
  Lock lock;

  return runtime.moved;
}

const char *
fake_cuda_error (void)
{
  Lock lock;

  return runtime.error.c_str ();
}

const char *
fake_cuda_finish (void)
{
  Lock lock;

  check_memory ();
  check_streams ();
  for (const auto &[object, left] : runtime.left)
    report ("a " + left.kind + " is never destroyed");
  return runtime.error.c_str ();
}

void
fake_cuda_run_backwards (gboolean backwards)
{
  Lock lock;

  set_backwards (backwards);
}

void
fake_cuda_find_races (gboolean find)
{
  Lock lock;

  races_find (find);
}

void
fake_cuda_guard (gboolean guard)
{
  Lock lock;

  open_memory (true);
  runtime.guards = guard;
}

void
fake_cuda_fail_at (guint call, int error)
{
  Lock lock;

  runtime.fails_in = call;
  runtime.failure = (cudaError_t)error;
}

void
fake_cuda_show (guint device)
{
  Lock lock;

  g_assert (device < runtime.machine.devices);
  thread ().device = device;
  thread ().is_shown_one = true;
}

/* --- devices ------------------------------------------------------------------------------ */

namespace
{

/* The properties of the devices that kernels are compiled for: NVIDIA's A100, H200 and B200, by
 * compute capability (CUDA C++ programming guide, technical specifications; L2 caches as their data
 * sheets have them). */
const struct Kind
{
  int major;
  const char *name;
  int multiprocessors, l2_bytes, memory_bits;
  size_t shared_optin;
} kinds[] = {
  { 10, "Fake B200", 148, 126 << 20, 8192, 232448 },
  { 9, "Fake H200", 132, 60 << 20, 6144, 232448 },
  { 0, "Fake A100", 108, 40 << 20, 5120, 166912 },
};

const Kind &
kind ()
{
  const Kind *found = kinds;

  while (runtime.machine.major < found->major)
    found++;
  return *found;
}

/* How many devices the calling thread sees. */
unsigned
visible ()
{
  return thread ().is_shown_one ? 1 : runtime.machine.devices;
}

cudaError_t
check_device (int device)
{
  return result (device >= 0 && (unsigned)device < visible () ? cudaSuccess
                                                              : cudaErrorInvalidDevice);
}

int
attribute (enum cudaDeviceAttr attr)
{
  switch (attr)
    {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxGridDimY:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return kind ().multiprocessors;
    case cudaDevAttrL2CacheSize:
      return kind ().l2_bytes;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
      return 1;
    case cudaDevAttrComputeCapabilityMajor:
      return runtime.machine.major;
    case cudaDevAttrComputeCapabilityMinor:
      return runtime.machine.minor;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return (int)kind ().shared_optin + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return (int)kind ().shared_optin;
    }
  return 0;
}

}

cudaError_t
cudaDriverGetVersion (int *version)
{
  Lock lock;

  *version = runtime.machine.driver;
  return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion (int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t
cudaGetDeviceCount (int *count)
{
  Lock lock;

  *count = 0;
  if (runtime.machine.driver / 1000
      < CUDART_VERSION / 1000) /* any minor version of the same major version will do */
    return result (cudaErrorInsufficientDriver);
  *count = (int)visible ();
  return result (*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t
cudaSetDevice (int device)
{
  Lock lock;
  cudaError_t error = check_device (device);

  if (error == cudaSuccess && !thread ().is_shown_one)
    thread ().device = (unsigned)device;
  return error;
}

cudaError_t
cudaGetDevice (int *device)
{
  Lock lock;

  *device = thread ().is_shown_one ? 0 : (int)current_device ();
  return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute (int *value, enum cudaDeviceAttr attr, int device)
{
  Lock lock;
  cudaError_t error = check_device (device);

  if (error == cudaSuccess)
    *value = attribute (attr);
  return error;
}

cudaError_t
cudaGetDeviceProperties (struct cudaDeviceProp *prop, int device)
{
  Lock lock;
  cudaError_t error = check_device (device);

  if (error != cudaSuccess)
    return error;
  *prop = {};
  g_strlcpy (prop->name, kind ().name, sizeof prop->name);
  prop->totalGlobalMem = runtime.machine.bytes;
  prop->sharedMemPerBlock = (size_t)attribute (cudaDevAttrMaxSharedMemoryPerBlock);
  prop->sharedMemPerBlockOptin = kind ().shared_optin;
  prop->warpSize = attribute (cudaDevAttrWarpSize);
  prop->maxThreadsPerBlock = attribute (cudaDevAttrMaxThreadsPerBlock);
  prop->maxThreadsPerMultiProcessor = attribute (cudaDevAttrMaxThreadsPerMultiProcessor);
  prop->major = runtime.machine.major;
  prop->minor = runtime.machine.minor;
  prop->multiProcessorCount = kind ().multiprocessors;
  prop->memoryBusWidth = kind ().memory_bits;
  prop->l2CacheSize = kind ().l2_bytes;
  prop->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t
cudaDeviceGetPCIBusId (char *id, int bytes, int device)
{
  Lock lock;
  cudaError_t error = check_device (device);

  if (error == cudaSuccess)
    g_snprintf (id, (gulong)bytes, "0000:%02X:00.0",
                (thread ().is_shown_one ? (int)current_device () : device) + 1);
  return error;
}

cudaError_t
cudaDeviceGetStreamPriorityRange (int *least, int *greatest)
{
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t
cudaDeviceCanAccessPeer (int *can, int device, int peer)
{
  Lock lock;
  cudaError_t error = check_device (device);

  if (error == cudaSuccess)
    error = check_device (peer);
  if (error == cudaSuccess)
    *can = device != peer;
  return error;
}

cudaError_t
cudaDeviceEnablePeerAccess (int peer, unsigned int flags)
{
  Lock lock;
  cudaError_t error = check_device (peer);
  unsigned *peers = &runtime.device[current_device ()].peers;

  if (error != cudaSuccess || (unsigned)peer == current_device () || flags != 0)
    return result (error != cudaSuccess ? error : cudaErrorInvalidValue);
  if (*peers >> peer & 1)
    return result (cudaErrorPeerAccessAlreadyEnabled);
  *peers |= 1u << peer;
  return cudaSuccess;
}

/* --- errors ------------------------------------------------------------------------------- */

cudaError_t
cudaPeekAtLastError (void)
{
  Lock lock;

  return runtime.sticky != cudaSuccess ? runtime.sticky : thread ().error;
}

cudaError_t
cudaGetLastError (void)
{
  Lock lock;
  cudaError_t error = cudaPeekAtLastError ();

  thread ().error = cudaSuccess;
  return error;
}

const char *
cudaGetErrorName (cudaError_t error)
{
#define NAME(name, value) \
  case name: \
    return #name;
  switch (error)
    {
      FAKE_CUDA_ERRORS (NAME)
    }
  return "unrecognized error code";
}

const char *
cudaGetErrorString (cudaError_t error)
{
  return error == cudaSuccess ? "no error" : cudaGetErrorName (error);
}

/* Accepts any size of shared memory: kernels here are plain functions. */
cudaError_t
cudaFuncSetAttribute (const void *function, enum cudaFuncAttribute attr, int value)
{
  Lock lock;

  return result (value >= 0 && (size_t)value <= kind ().shared_optin ? cudaSuccess
                                                                     : cudaErrorInvalidValue);
}
