/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a GPU driver, or the toolkit's stub of one, so that cuDNN can be asked what attention needs
 * on a machine without a GPU. */
#include "config.h"

#include "exec/cuda/attention-cudnn.h"
#include "planner/base/error.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

/* The path of the toolkit's stub of the driver, in the folder of the CUDA runtime that is in use;
 * NULL if that is not found. The caller frees. */
static char *
find_stub (void)
{
  Dl_info info;
  char *library; /* for free, not g_free */

  if (dladdr ((gpointer)cudaRuntimeGetVersion, &info) == 0
      || (library = realpath (info.dli_fname, NULL)) == NULL)
    return NULL;
  g_autofree char *folder = g_path_get_dirname (library);
  free (library);
  return g_build_filename (folder, "stubs", "libcuda.so", NULL);
}

gboolean
exec_attention_load_driver (GError **error)
{
  g_autofree char *stub = NULL;

  if (dlopen ("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL)
    return TRUE;
  stub = find_stub ();
  if (stub && dlopen (stub, RTLD_NOW | RTLD_GLOBAL) != NULL) /* its SONAME is libcuda.so.1 */
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "there is neither a GPU's driver here nor the CUDA toolkit's stub of one (%s), and "
               "cuDNN answers nothing without",
               stub ? stub : "stubs/libcuda.so");
  return FALSE;
}
