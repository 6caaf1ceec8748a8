/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cuda_runtime_api.h"
#include "tests/fake/order.h"
#include "tests/fake/planted.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tests of the fake device's streams, events, graphs and memory: which uses are ordered, and which
 * are reported. */

#define OK(call) ck_assert_int_eq (call, cudaSuccess)

/* 64 numbers each, in two arrays on the device and one in pinned memory; see finish. */
static float *in, *out, *pinned;
static cudaStream_t one, two;
static cudaEvent_t event;

static void
set_up (void)
{
  fake_cuda_reset ();
  OK (cudaMalloc ((void **)&in, 256));
  OK (cudaMalloc ((void **)&out, 256));
  OK (cudaMallocHost ((void **)&pinned, 256));
  OK (cudaStreamCreateWithFlags (&one, cudaStreamNonBlocking));
  OK (cudaStreamCreateWithPriority (&two, cudaStreamNonBlocking, -1));
  OK (cudaEventCreateWithFlags (&event, cudaEventDisableTiming));
}

/* Frees everything; returns what went wrong first, or "". */
static const char *
finish (void)
{
  cudaDeviceSynchronize ();
  cudaFree (in);
  cudaFree (out);
  cudaFreeHost (pinned);
  cudaStreamDestroy (one);
  cudaStreamDestroy (two);
  cudaEventDestroy (event);
  return fake_cuda_finish ();
}

static void
hand_over (cudaStream_t from, cudaStream_t to)
{
  OK (cudaEventRecord (event, from));
  OK (cudaStreamWaitEvent (to, event, 0));
}

/* --- streams and events ------------------------------------------------------------------- */

START_TEST (order_by_events)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  hand_over (one, two);
  OK (planted_copy (out, in, 64, two)); /* read after write */
  hand_over (two, one);
  OK (cudaMemsetAsync (in, 0, 256, one));  /* write after read */
  OK (cudaMemsetAsync (out, 0, 256, one)); /* write after write */
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (order_sees_a_read_without_its_event)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (planted_copy (out, in + 16, 48, two));
  ck_assert_str_eq (finish (), "copy (#2, stream 2) reads 192 bytes at 64 of memory 1 (256 bytes), "
                               "which memset 256 (#1, stream 1) writes: nothing orders the two");
}
END_TEST

/* The report does not depend on which is issued first. */
START_TEST (order_sees_a_write_without_its_event)
{
  OK (cudaMemsetAsync (in, 0, 256, two));
  hand_over (two, one);
  OK (planted_copy (out, in, 64, one));
  OK (cudaMemsetAsync (in + 32, 0, 4, two));
  ck_assert_str_eq (finish (), "memset 4 (#4, stream 2) writes 4 bytes at 128 of memory 1 (256 "
                               "bytes), which copy (#3, stream 1) reads: nothing orders the two");
}
END_TEST

START_TEST (order_takes_apart_what_is_apart)
{
  OK (cudaMemsetAsync (in, 0, 128, one));
  OK (cudaMemsetAsync (in + 32, 0, 128, two));
  OK (planted_copy (out, in, 32, one));
  OK (planted_copy (out + 32, in + 32, 32, two));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* An event is what its stream had been given when it was recorded, not what came later. */
START_TEST (order_sees_an_event_recorded_too_early)
{
  OK (cudaEventRecord (event, one));
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaStreamWaitEvent (two, event, 0));
  OK (planted_copy (out, in, 64, two));
  ck_assert_str_ne (finish (), "");
}
END_TEST

START_TEST (order_is_handed_on)
{
  cudaStream_t three;

  OK (cudaStreamCreateWithFlags (&three, cudaStreamNonBlocking));
  OK (cudaMemsetAsync (in, 0, 256, one));
  hand_over (one, two);
  hand_over (two, three);
  OK (planted_copy (out, in, 64, three));
  OK (cudaStreamDestroy (three));
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (order_of_the_default_stream)
{
  cudaStream_t blocking;

  OK (cudaStreamCreate (&blocking));
  OK (cudaMemsetAsync (in, 0, 256, blocking));
  OK (planted_copy (out, in, 64, NULL));
  OK (cudaMemsetAsync (in, 0, 256, blocking));
  ck_assert_str_eq (fake_cuda_error (), "");
  OK (cudaMemsetAsync (out, 0, 256,
                       one)); /* this stream was made not to wait for the default one */
  ck_assert_str_ne (fake_cuda_error (), "");
  OK (cudaStreamDestroy (blocking));
}
END_TEST

START_TEST (order_by_the_host)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaStreamSynchronize (one));
  OK (planted_copy (out, in, 64, two));
  OK (cudaEventRecord (event, two));
  OK (cudaEventSynchronize (event));
  OK (cudaMemsetAsync (out, 0, 256, one));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* The atomics of two launches on two streams give another sum each time. */
START_TEST (order_sees_atomics)
{
  OK (cudaMemset (in, 0, 256));
  OK (cudaMemset (out, 0, 256));
  OK (cudaDeviceSynchronize ());
  OK (planted_sum (out, in, 64, one));
  OK (planted_sum (out, in, 64, two));
  ck_assert_str_eq (finish (), "sum (#4, stream 2) reads 4 bytes at 0 of memory 2 (256 bytes), "
                               "which sum (#3, stream 1) writes: nothing orders the two");
}
END_TEST

/* --- the host ----------------------------------------------------------------------------- */

START_TEST (host_must_wait_for_a_result)
{
  float values[64];

  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaMemcpy (values, in, 256, cudaMemcpyDeviceToHost));
  ck_assert_str_eq (finish (),
                    "memcpy 256 device to pageable (#2, stream 0) reads 256 bytes at 0 of memory 1 "
                    "(256 bytes), which memset 256 (#1, stream 1) writes: nothing orders the two");
}
END_TEST

START_TEST (host_must_wait_before_it_frees)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaFree (in));
  ck_assert_str_eq (fake_cuda_error (), "cudaFree of 256 bytes at 0 of memory 1 (256 bytes), which "
                                        "memset 256 (#1, stream 1) may still use");
}
END_TEST

START_TEST (host_sees_a_copy_once_it_has_waited)
{
  pinned[3] = 5;
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaMemcpyAsync (pinned, in, 256, cudaMemcpyDeviceToHost, one));
  ck_assert (isnan (pinned[3]));
  OK (cudaMemcpyAsync (out, pinned, 256, cudaMemcpyHostToDevice,
                       one)); /* the device sees the memory */
  OK (cudaMemcpyAsync (pinned + 32, out, 4, cudaMemcpyDeviceToHost, one));
  ck_assert (isnan (pinned[32]));
  OK (cudaStreamSynchronize (one));
  ck_assert (pinned[3] == 0 && pinned[32] == 0);
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (host_must_not_change_what_is_copied)
{
  memset (pinned, 0, 256);
  OK (cudaMemcpyAsync (in, pinned, 256, cudaMemcpyHostToDevice, one));
  pinned[7] = 1;
  ck_assert_str_eq (finish (),
                    "the host changes 256 bytes at 0 of pinned memory 3 (256 bytes) while memcpy "
                    "256 pinned to device (#1, stream 1) may still read them");
}
END_TEST

/* Of what the host says that it uses: reads behind writes, and writes behind reads; other bytes and
 * what the host has waited for are free. */
START_TEST (host_uses_are_ordered)
{
  OK (cudaMemcpyAsync (pinned, in, 128, cudaMemcpyDeviceToHost, one));
  fake_order_host_use ("step", pinned + 32, 128, TRUE);
  OK (cudaStreamSynchronize (one));
  fake_order_host_use ("step", pinned, 256, _i == 0);
  OK (cudaMemcpyAsync (out, pinned, 256, cudaMemcpyHostToDevice, two));
  fake_order_host_use ("step", pinned, 256, FALSE);
  ck_assert_str_eq (fake_cuda_error (), "");
  if (_i == 0)
    fake_order_host_use ("step", pinned + 1, 4, TRUE);
  else if (_i == 1)
    {
      OK (cudaMemcpyAsync (pinned, in, 256, cudaMemcpyDeviceToHost, two));
      fake_order_host_use ("step", pinned, 4, FALSE);
    }
  else
    fake_order_host_use ("step", in, 4, FALSE);
  g_autofree char *found = g_strdup (fake_cuda_error ());
  ck_assert_str_ne (finish (), "");
  ck_assert_str_eq (found, _i == 0 ? "the host's step writes 4 bytes at 4 of pinned memory 3 (256 "
                                     "bytes), which memcpy 256 pinned to device (#2, stream 2) "
                                     "may still use"
                           : _i == 1
                               ? "the host's step reads 4 bytes at 0 of pinned memory 3 (256 "
                                 "bytes), which memcpy 256 device to pinned (#3, stream 2) "
                                 "may still use"
                               : "the host's step reads 4 bytes of memory that is not pinned");
}
END_TEST

START_TEST (host_learns_when_events_are_over)
{
  cudaEvent_t begin, end;
  float ms = 0;

  OK (cudaEventCreate (&begin));
  OK (cudaEventCreate (&end));
  OK (cudaEventRecord (begin, one));
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaEventRecord (end, one));
  ck_assert_int_eq (cudaEventElapsedTime (&ms, begin, end), cudaErrorNotReady);
  OK (cudaEventSynchronize (end));
  OK (cudaEventElapsedTime (&ms, begin, end));
  ck_assert (ms > 0);
  ck_assert_int_eq (cudaEventElapsedTime (&ms, begin, event), cudaErrorInvalidResourceHandle);
  OK (cudaEventDestroy (begin));
  OK (cudaEventDestroy (end));
  ck_assert_str_eq (finish (), "");
}
END_TEST

static void
fill (void *data)
{
  pinned[0] += 1; /* the earlier copy has arrived */
}

START_TEST (host_functions_are_in_order)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaMemcpyAsync (pinned, in, 256, cudaMemcpyDeviceToHost, one));
  OK (cudaLaunchHostFunc (one, fill, NULL));
  OK (cudaStreamSynchronize (one));
  ck_assert (pinned[0] == 1);
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (host_must_not_touch_the_device)
{
  fake_cuda_guard (TRUE);
  OK (cudaMemsetAsync (in, 0, 256, one));
  in[5] = 1;
  ck_assert_str_eq (finish (), "the host touches 1 bytes at 20 of memory 1 (256 bytes) outside of "
                               "the runtime's calls");
}
END_TEST

START_TEST (host_says_where_it_copies)
{
  float values[64];

  ck_assert_int_eq (cudaMemcpy (values, in, 256, cudaMemcpyHostToDevice),
                    cudaErrorInvalidMemcpyDirection);
  ck_assert_str_eq (fake_cuda_error (),
                    "a copy from device to pageable memory is said to be of kind 1");
}
END_TEST

/* --- threads ------------------------------------------------------------------------------ */

static gpointer
write_and_wait (gpointer data)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaStreamSynchronize (one));
  if (data != NULL)
    fake_order_host_give (data);
  return NULL;
}

static gpointer
write_and_record (gpointer data)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  OK (cudaEventRecord (event, one));
  return NULL;
}

START_TEST (threads_are_told_by_events)
{
  g_thread_join (g_thread_new ("writer", write_and_record, NULL));
  OK (cudaStreamWaitEvent (two, event, 0));
  OK (planted_copy (out, in, 64, two));
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (threads_are_told_by_the_end)
{
  g_thread_join (g_thread_new ("writer", write_and_wait, NULL));
  OK (planted_copy (out, in, 64, two));
  ck_assert_str_eq (finish (), "");
}
END_TEST

typedef struct
{
  GAsyncQueue *to, *from;
  gboolean gives;
} Talk;

/* Writes and sends a message, and lives on after that. */
static gpointer
write_and_tell (gpointer data)
{
  Talk *talk = data;

  write_and_wait (talk->gives ? talk : NULL);
  g_async_queue_push (talk->from, talk);
  g_async_queue_pop (talk->to);
  return NULL;
}

/* A thread that knows that a stream is done tells another thread in a way that CUDA does not
 * see. */
START_TEST (threads_are_told_by_messages)
{
  Talk talk = { g_async_queue_new (), g_async_queue_new (), _i };
  GThread *thread;

  OK (cudaEventQuery (event)); /* what this thread knows is known to the other one before */
  thread = g_thread_new ("writer", write_and_tell, &talk);
  g_async_queue_pop (talk.from);
  if (talk.gives)
    fake_order_host_take (&talk);
  OK (planted_copy (out, in, 64, two));
  ck_assert_int_eq (*fake_cuda_error () == '\0', talk.gives);
  g_async_queue_push (talk.to, &talk);
  g_thread_join (thread);
  g_async_queue_unref (talk.to);
  g_async_queue_unref (talk.from);
  finish ();
}
END_TEST

#define THREADS 4
#define ROUNDS 50

static gpointer
work (gpointer data)
{
  int device = GPOINTER_TO_INT (data) % 2;
  cudaStream_t stream;
  float *from, *to, values[64];

  OK (cudaSetDevice (device));
  OK (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
  for (guint round = 0; round < ROUNDS; round++)
    {
      OK (cudaMalloc ((void **)&from, 256));
      OK (cudaMalloc ((void **)&to, 256));
      OK (planted_reverse (from, stream));
      OK (planted_copy (to, from, 64, stream));
      OK (cudaMemcpyAsync (values, to, 256, cudaMemcpyDeviceToHost, stream));
      for (guint i = 0; i < 64; i++)
        ck_assert (values[i] == (float)(63 - i));
      OK (cudaFree (from));
      OK (cudaFree (to));
    }
  OK (cudaStreamDestroy (stream));
  return NULL;
}

START_TEST (threads_work_side_by_side)
{
  GThread *threads[THREADS];

  fake_cuda_set_machine (2, 1 << 20, 9, 0);
  for (int i = 0; i < THREADS; i++)
    threads[i] = g_thread_new ("work", work, GINT_TO_POINTER (i));
  for (int i = 0; i < THREADS; i++)
    g_thread_join (threads[i]);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* --- devices ------------------------------------------------------------------------------ */

START_TEST (devices_need_leave_for_their_peers)
{
  float *here, *there;
  cudaStream_t stream;

  fake_cuda_set_machine (2, 1 << 20, 9, 0);
  OK (cudaMalloc ((void **)&here, 256));
  OK (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
  OK (cudaSetDevice (1));
  OK (cudaMalloc ((void **)&there, 256));
  ck_assert_int_eq (planted_copy (here, there, 64, stream), cudaErrorInvalidResourceHandle);
  OK (cudaSetDevice (0));
  if (_i == 1)
    OK (cudaDeviceEnablePeerAccess (1, 0));
  ck_assert_int_eq (planted_copy (here, there, 64, stream),
                    _i == 1 ? cudaSuccess : cudaErrorIllegalAddress);
  ck_assert_str_eq (fake_cuda_error (), _i == 1
                                            ? ""
                                            : "copy (#1, stream 2) on device 0 touches 256 bytes "
                                              "at 0 of memory 2 (256 bytes) of device 1 without "
                                              "access to its peer");
}
END_TEST

START_TEST (devices_run_out_of_memory)
{
  void *large, *more;
  size_t left, total;

  fake_cuda_set_machine (1, 4096, 9, 0);
  OK (cudaMalloc (&large, 4000));
  OK (cudaMemGetInfo (&left, &total));
  ck_assert_uint_eq (left, 96);
  ck_assert_int_eq (cudaMalloc (&more, 97), cudaErrorMemoryAllocation);
  ck_assert_int_eq (cudaGetLastError (), cudaErrorMemoryAllocation);
  ck_assert_int_eq (cudaGetLastError (), cudaSuccess);
  OK (cudaFree (large));
  OK (cudaMalloc (&more, 4096));
  OK (cudaFree (more));
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* --- what is left, or given back twice ---------------------------------------------------- */

START_TEST (leaks_are_reported)
{
  static const char *const errors[]
      = { "memory 1 (256 bytes) is never freed", "pinned memory 3 (256 bytes) is never freed",
          "stream 1 is never destroyed", "event 1 is never destroyed" };

  if (_i != 0)
    OK (cudaFree (in));
  OK (cudaFree (out));
  if (_i != 1)
    OK (cudaFreeHost (pinned));
  if (_i != 2)
    OK (cudaStreamDestroy (one));
  OK (cudaStreamDestroy (two));
  if (_i != 3)
    OK (cudaEventDestroy (event));
  ck_assert_str_eq (fake_cuda_finish (), errors[_i]);
}
END_TEST

START_TEST (frees_are_checked)
{
  OK (cudaFree (out));
  ck_assert_int_eq (cudaFree (out), cudaErrorInvalidValue);
  ck_assert_str_eq (fake_cuda_error (), "cudaFree of memory 2 again");
  set_up ();
  ck_assert_int_eq (cudaFree (in + 1), cudaErrorInvalidValue);
  ck_assert_str_eq (fake_cuda_error (), "cudaFree of what it did not give");
  set_up ();
  ck_assert_int_eq (cudaFreeHost (in), cudaErrorInvalidValue);
  ck_assert_str_eq (fake_cuda_error (), "cudaFreeHost of what it did not give");
  set_up ();
  ((char *)pinned)[256] = 0;
  OK (cudaFreeHost (pinned));
  ck_assert_str_eq (fake_cuda_error (),
                    "1 bytes at 256 of pinned memory 3 (256 bytes): beyond its end, and written");
  set_up ();
  OK (cudaStreamDestroy (one));
  ck_assert_int_eq (cudaMemsetAsync (in, 0, 4, one), cudaErrorInvalidResourceHandle);
  ck_assert_str_eq (fake_cuda_error (), "stream 1 is used, but destroyed");
}
END_TEST

START_TEST (memory_is_not_a_number_at_first)
{
  float values[64];

  OK (cudaMemcpy (values, in, 256, cudaMemcpyDeviceToHost));
  for (guint i = 0; i < 64; i++)
    ck_assert (isnan (values[i]) && isnan (pinned[i]));
}
END_TEST

START_TEST (calls_fail_when_they_are_told_to)
{
  void *memory = NULL;

  fake_cuda_fail_at (2, cudaErrorMemoryAllocation);
  OK (cudaMemsetAsync (in, 0, 256, one));
  ck_assert_int_eq (cudaMalloc (&memory, 16), cudaErrorMemoryAllocation);
  OK (cudaMalloc (&memory, 16));
  OK (cudaFree (memory));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* --- collectives and graphs --------------------------------------------------------------- */

/* A sum over two streams: each uses its own memory, and neither continues before both have come. */
START_TEST (collectives_order_all_streams)
{
  cudaStream_t streams[] = { one, two };
  float *buffers[] = { in, out };

  for (guint i = 0; i < 2; i++)
    OK (cudaMemsetAsync (buffers[i], 0, 256, streams[i]));
  for (guint i = 0; i < 2; i++)
    {
      OK (fake_order_begin (streams[i], "sum"));
      ck_assert (fake_order_read (streams[i], buffers[i], 256));
      ck_assert (fake_order_write (streams[i], buffers[i], 256));
    }
  fake_order_meet (streams, 2);
  for (guint i = 0; i < 2; i++)
    fake_order_end (streams[i]);
  OK (planted_copy (in, out, 64, one)); /* it is ordered after the sum */
  ck_assert_str_eq (fake_cuda_error (), "");
  OK (planted_copy (out, in, 64, two)); /* it is not */
  ck_assert_str_ne (finish (), "");
}
END_TEST

static cudaError_t
add_one (cudaStream_t stream, void *closure)
{
  float *at = *(float **)closure;

  if (!fake_order_write (stream, at, 4))
    return cudaErrorIllegalAddress;
  *at += 1;
  return cudaSuccess;
}

/* Captures: in = 0, in + 1, then out = in on another stream, and back. */
static cudaGraph_t
capture (gboolean hands_over)
{
  cudaGraph_t graph;

  OK (cudaStreamBeginCapture (one, cudaStreamCaptureModeThreadLocal));
  OK (cudaMemsetAsync (in, 0, 256, one));
  if (hands_over)
    OK (fake_order_run (one, "add one", add_one, &in, sizeof in));
  hand_over (one, two);
  if (!hands_over)
    OK (fake_order_run (one, "add one", add_one, &in, sizeof in));
  OK (planted_copy (out, in, 64, two));
  hand_over (two, one);
  OK (cudaStreamEndCapture (one, &graph));
  return graph;
}

START_TEST (graphs_run_what_was_captured)
{
  cudaGraph_t graph = capture (TRUE);
  cudaGraphExec_t exec;

  OK (cudaGraphInstantiate (&exec, graph, 0));
  OK (cudaGraphDestroy (graph));
  ck_assert_str_eq (fake_cuda_log (), ""); /* capturing runs nothing */
  for (guint i = 0; i < 3; i++)
    OK (cudaGraphLaunch (exec, one));
  OK (cudaMemcpyAsync (pinned, out, 256, cudaMemcpyDeviceToHost, one));
  OK (cudaStreamSynchronize (one));
  ck_assert (pinned[0] == 1 && pinned[1] == 0);
  OK (cudaGraphExecDestroy (exec));
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (graphs_show_missing_events)
{
  cudaGraph_t graph = capture (FALSE);
  cudaGraphExec_t exec;

  OK (cudaGraphInstantiate (&exec, graph, 0));
  ck_assert_str_eq (fake_cuda_error (), "");
  OK (cudaGraphLaunch (exec, one));
  ck_assert_str_eq (fake_cuda_error (),
                    "copy (#4, stream 4) reads 4 bytes at 0 of memory 1 (256 bytes), which add one "
                    "(#3, stream 3) writes: nothing orders the two");
}
END_TEST

START_TEST (graphs_refuse_what_cannot_be_captured)
{
  cudaGraph_t graph;
  void *memory;

  OK (cudaStreamBeginCapture (one, cudaStreamCaptureModeGlobal));
  OK (cudaMemsetAsync (in, 0, 256, one));
  ck_assert_int_eq (cudaMalloc (&memory, 16), cudaErrorStreamCaptureUnsupported);
  ck_assert_int_eq (cudaStreamEndCapture (one, &graph), cudaErrorStreamCaptureInvalidated);
  OK (cudaStreamBeginCapture (one, cudaStreamCaptureModeRelaxed));
  ck_assert_int_eq (cudaStreamSynchronize (one), cudaErrorStreamCaptureUnsupported);
  ck_assert_int_eq (cudaStreamEndCapture (one, &graph), cudaErrorStreamCaptureInvalidated);
  OK (cudaStreamBeginCapture (one, cudaStreamCaptureModeRelaxed));
  hand_over (one, two);
  OK (cudaMemsetAsync (in, 0, 256, two));
  ck_assert_int_eq (cudaStreamEndCapture (two, &graph), cudaErrorStreamCaptureUnmatched);
  ck_assert_int_eq (cudaStreamEndCapture (one, &graph), cudaErrorStreamCaptureUnjoined);
  ck_assert_str_eq (finish (), "");
}
END_TEST

static TCase *
new_case (const char *name)
{
  TCase *tcase = tcase_create (name);

  tcase_add_checked_fixture (tcase, set_up, NULL);
  return tcase;
}

static void
add_order_tests (Suite *suite)
{
  TCase *tcase = new_case ("order");

  tcase_add_test (tcase, order_by_events);
  tcase_add_test (tcase, order_sees_a_read_without_its_event);
  tcase_add_test (tcase, order_sees_a_write_without_its_event);
  tcase_add_test (tcase, order_takes_apart_what_is_apart);
  tcase_add_test (tcase, order_sees_an_event_recorded_too_early);
  tcase_add_test (tcase, order_is_handed_on);
  tcase_add_test (tcase, order_of_the_default_stream);
  tcase_add_test (tcase, order_by_the_host);
  tcase_add_test (tcase, order_sees_atomics);
  tcase_add_test (tcase, collectives_order_all_streams);
  tcase_add_test (tcase, graphs_run_what_was_captured);
  tcase_add_test (tcase, graphs_show_missing_events);
  tcase_add_test (tcase, graphs_refuse_what_cannot_be_captured);
  suite_add_tcase (suite, tcase);
}

static void
add_host_tests (Suite *suite)
{
  TCase *tcase = new_case ("host");

  tcase_add_test (tcase, host_must_wait_for_a_result);
  tcase_add_test (tcase, host_must_wait_before_it_frees);
  tcase_add_test (tcase, host_sees_a_copy_once_it_has_waited);
  tcase_add_test (tcase, host_must_not_change_what_is_copied);
  tcase_add_test (tcase, host_learns_when_events_are_over);
  tcase_add_loop_test (tcase, host_uses_are_ordered, 0, 3);
  tcase_add_test (tcase, host_functions_are_in_order);
  tcase_add_test (tcase, host_must_not_touch_the_device);
  tcase_add_test (tcase, host_says_where_it_copies);
  tcase_add_test (tcase, threads_are_told_by_events);
  tcase_add_test (tcase, threads_are_told_by_the_end);
  tcase_add_loop_test (tcase, threads_are_told_by_messages, 0, 2);
  tcase_add_test (tcase, threads_work_side_by_side);
  suite_add_tcase (suite, tcase);
}

static void
add_device_tests (Suite *suite)
{
  TCase *tcase = new_case ("devices");

  tcase_add_loop_test (tcase, devices_need_leave_for_their_peers, 0, 2);
  tcase_add_test (tcase, devices_run_out_of_memory);
  tcase_add_loop_test (tcase, leaks_are_reported, 0, 4);
  tcase_add_test (tcase, frees_are_checked);
  tcase_add_test (tcase, memory_is_not_a_number_at_first);
  tcase_add_test (tcase, calls_fail_when_they_are_told_to);
  suite_add_tcase (suite, tcase);
}

int
main (void)
{
  Suite *suite = suite_create ("cuda-order");
  SRunner *runner;
  int failed;

  add_order_tests (suite);
  add_host_tests (suite);
  add_device_tests (suite);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
