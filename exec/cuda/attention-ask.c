/* SPDX-License-Identifier: Apache-2.0 */
/* Asks cuDNN's heuristics how much workspace attention takes on a GPU that is only described to
 * them. */
#include "config.h"

#include "exec/cuda/attention-graph.h"
#include "planner/base/error.h"

#include <string.h>

/* The properties that cuDNN asks for and in which these GPUs differ, from NVIDIA's data sheets and
 * the CUDA C programming guide's table of compute capabilities. */
static const struct
{
  const char *name;
  guint version; /* compute capability, times 100 */
  guint sms, shared_kib, l2_mib, memory_gib, clock_mhz, memory_clock_mhz;
} gpus[] = {
  { "A100", 800, 108, 163, 40, 80, 1410, 1593 },
  { "H100", 900, 132, 227, 50, 80, 1980, 2619 },
  { "H200", 900, 132, 227, 60, 141, 1980, 3201 },
  { "B200", 1000, 148, 227, 126, 180, 1965, 3996 },
};

static const char *const names[] = { "A100", "H100", "H200", "B200", NULL };

const char *const *
exec_attention_gpus (void)
{
  return names;
}

const char *
exec_attention_gpu_of (gint64 capability)
{
  for (guint i = 0; i < G_N_ELEMENTS (gpus); i++)
    if (gpus[i].version == 10 * capability)
      return gpus[i].name;
  return NULL;
}

guint
exec_attention_version (void)
{
  return (guint)cudnnGetVersion ();
}

static char *
describe (guint gpu)
{
  return g_strdup_printf (
      "{\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA %s\",\"deviceVer\":%u,\"driverVer\":13000,"
      "\"totalGlobalMem\":%" G_GUINT64_FORMAT ",\"maxGridSize\":[2147483647,65535,65535],"
      "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%u,"
      "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%u,"
      "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
      "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
      "\"supportCoopLaunch\":1,\"smClockRateKHz\":%u,\"memClockRateKHz\":%u,\"l2CacheSize\":%u}",
      gpus[gpu].name, gpus[gpu].version, (guint64)gpus[gpu].memory_gib << 30, gpus[gpu].sms,
      gpus[gpu].shared_kib << 10, gpus[gpu].clock_mhz * 1000, gpus[gpu].memory_clock_mhz * 1000,
      gpus[gpu].l2_mib << 20);
}

static gboolean
find_gpu (const char *name, guint *out, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (gpus); i++)
    if (g_ascii_strcasecmp (gpus[i].name, name) == 0)
      {
        *out = i;
        return TRUE;
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "'%s' is not a GPU that attention is known for: A100, H100, H200 or B200", name);
  return FALSE;
}

/* Bytes of workspace of the first engine that the heuristics propose. */
static gboolean
ask (ExecAttentionGraph *graph, const char *properties, guint64 *out_bytes, GError **error)
{
  cudnnBackendDescriptor_t device
      = exec_attention_graph_add (graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  ExecAttentionEngines engines;

  exec_attention_graph_set (graph, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                            CUDNN_TYPE_CHAR, (gint64)strlen (properties) + 1, properties);
  exec_attention_graph_finalize (graph, device, "the GPU");
  exec_attention_graph_engines (graph, device, &engines);
  if (!exec_attention_graph_check (graph, error))
    return FALSE;
  if (engines.n == 0)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                           "cuDNN has no engine for attention of this shape");
      return FALSE;
    }
  *out_bytes = (guint64)engines.workspace[0];
  return TRUE;
}

gboolean
exec_attention_ask (const ExecAttentionShape *shape, const char *gpu, guint64 *out_bytes,
                    GError **error)
{
  ExecAttentionGraph graph;
  g_autofree char *properties = NULL;
  guint index;
  guint64 own;

  if (!find_gpu (gpu, &index, error))
    return FALSE;
  properties = describe (index);
  const gboolean ok = exec_attention_graph_init (&graph, shape, NULL, error)
                      && ask (&graph, properties, &own, error);
  exec_attention_graph_clear (&graph);
  if (ok)
    *out_bytes = exec_attention_inner_bytes (shape) + own;
  if (!ok)
    g_prefix_error (error, "%s: ", gpus[index].name);
  return ok;
}
