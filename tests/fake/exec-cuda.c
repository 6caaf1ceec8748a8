/* SPDX-License-Identifier: Apache-2.0 */
/* fsdplan-exec-cuda on fake GPUs, as a user runs it. The environment says which: FAKE_GPUS is their
 * number (1 by default), FAKE_CAPABILITY their compute capability (90), FAKE_CUDNN the version of
 * cuDNN (91900), and FAKE_CUDNN_MORE the bytes of workspace that it wants beyond what is known of
 * this version. A mistake that the fake GPUs notice ends the program with an error. */
#include "config.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/cudnn-fake.h"
#include "tests/fake/nccl-fake.h"

#include <stdio.h>
#include <stdlib.h>

#define MEMORY_BYTES (G_GUINT64_CONSTANT (2) << 30)

int __real_main (int argc, char **argv);
int __wrap_main (int argc, char **argv);

static int
number (const char *name, int otherwise)
{
  const char *text = g_getenv (name);
  return text ? atoi (text) : otherwise;
}

int
__wrap_main (int argc, char **argv)
{
  const int capability = number ("FAKE_CAPABILITY", 90);
  fake_cuda_reset ();
  fake_nccl_reset ();
  fake_cuda_set_machine ((guint)number ("FAKE_GPUS", 1), MEMORY_BYTES, capability / 10,
                         capability % 10);
  fake_cudnn_set ((guint)number ("FAKE_CUDNN", 91900), 0);
  fake_cudnn_want ((guint64)number ("FAKE_CUDNN_MORE", 0));
  const int status = __real_main (argc, argv);
  if (*fake_cuda_finish () == '\0')
    return status;
  fprintf (stderr, "fake GPU: %s\n", fake_cuda_finish ());
  return EXIT_FAILURE;
}
