/* Whether this machine has a GPU, asked in a process of its own: CUDA does not survive a fork, and
 * tests that are forked, each with a context of its own, must find none in their parent. An access
 * outside of memory, which makes a context unusable, then fails one test alone. */
#pragma once
#include <cuda_runtime_api.h>
#include <glib.h>
#include <sys/wait.h>
#include <unistd.h>

static inline gboolean
gpu_is_there (void)
{
  int status = 1;
  const pid_t child = fork ();

  if (child == 0)
    {
      int devices = 0;

      _exit (cudaGetDeviceCount (&devices) == cudaSuccess && devices > 0 ? 0 : 1);
    }
  return child > 0 && waitpid (child, &status, 0) == child && WIFEXITED (status)
         && WEXITSTATUS (status) == 0;
}
