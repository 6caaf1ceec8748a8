/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/nccl-fake-private.h"
#include "tests/fake/order.h"

static GMutex mutex;
static GHashTable *memory; /* allocations of ncclMemAlloc: address -> GSIZE_TO_POINTER (bytes) */

void
fake_nccl_forget_memory (void)
{
  g_mutex_lock (&mutex);
  g_clear_pointer (&memory, g_hash_table_unref);
  g_mutex_unlock (&mutex);
}

ncclResult_t
ncclMemAlloc (void **out, size_t bytes)
{
  if (cudaMalloc (out, bytes) != cudaSuccess)
    return ncclUnhandledCudaError;
  g_mutex_lock (&mutex);
  if (memory == NULL)
    memory = g_hash_table_new (NULL, NULL);
  g_hash_table_insert (memory, *out, GSIZE_TO_POINTER (bytes));
  g_mutex_unlock (&mutex);
  return ncclSuccess;
}

ncclResult_t
ncclMemFree (void *at)
{
  gboolean was_there;

  g_mutex_lock (&mutex);
  was_there = memory != NULL && g_hash_table_remove (memory, at);
  g_mutex_unlock (&mutex);
  if (!was_there)
    fake_order_report ("NCCL: ncclMemFree of what ncclMemAlloc did not give");
  return was_there && cudaFree (at) == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

gboolean
fake_nccl_is_taken (void *at, size_t bytes)
{
  gboolean is;

  g_mutex_lock (&mutex);
  is = memory != NULL && GPOINTER_TO_SIZE (g_hash_table_lookup (memory, at)) >= bytes;
  g_mutex_unlock (&mutex);
  return is && (guintptr)at % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
}

const char *
ncclGetErrorString (ncclResult_t result)
{
  static const char *const texts[] = { "no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress" };

  return texts[result];
}
