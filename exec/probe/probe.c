/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/probe/probe.h"

#include "exec/probe/probe-private.h"
#include "planner/base/error.h"
#include "planner/cluster/topology.h"

#include <string.h>

/* Assumed memory bandwidth of one processor until it is measured: a share of a DDR4-3200 channel
 * (25.6 GB/s). */
#define ASSUMED_BYTES_PER_S 10e9
#define ASSUMED_HZ 2e9  /* clock of a processor, where the kernel names none */
#define LATENCY_NS 2000 /* assumed: a barrier of two threads, or a hop over NVLink */

/* Assumed where no network port is known: 10 Gbit/s, and the latency of TCP. */
#define ASSUMED_PORT_BYTES_PER_S 1.25e9
#define ASSUMED_PORT_LATENCY_NS 30000

#define NVML_SOURCE "NVML"

/* A model name as a word: "AMD EPYC 7B13" -> "amd-epyc-7b13". The caller frees. */
static char *
word (const char *name)
{
  GString *out = g_string_new (NULL);
  for (; *name; name++)
    if (g_ascii_isalnum (*name))
      g_string_append_c (out, g_ascii_tolower (*name));
    else if (out->len && out->str[out->len - 1] != '-')
      g_string_append_c (out, '-');
  while (out->len && out->str[out->len - 1] == '-')
    g_string_truncate (out, out->len - 1);
  return g_string_free (out, FALSE);
}

/* Notes the source of a fact, unless it is that of the whole cluster. */
static void
note (PlanCluster *self, PlanFact fact, const char *source)
{
  g_free (self->fact_source[fact]);
  self->fact_source[fact] = g_strcmp0 (source, self->source) == 0 ? NULL : g_strdup (source);
}

/* How many GPUs are of the same model as the first. */
static guint
n_alike (const GArray *gpus)
{
  guint n = 0;
  for (guint i = 0; gpus && i < gpus->len; i++)
    n += g_str_equal (g_array_index (gpus, ExecGpu, i).name, g_array_index (gpus, ExecGpu, 0).name);
  return n;
}

/* A fingerprint of eight digits from facts that do not change, so not the current clock, free
 * memory or host name. Memory is rounded to GiB, since kernels reserve different shares. The caller
 * frees. */
static char *
fingerprint (const ExecHost *host, const GArray *gpus)
{
  g_autoptr (GString) facts = g_string_new (NULL);
  g_string_printf (facts, "%s|%d|%d|%d|%d|%d", host->processor ? host->processor : "",
                   (int)host->processors, (int)host->cores, (int)host->sockets,
                   (int)((host->memory_bytes + (1 << 29)) >> 30), (int)host->ports);
  for (guint i = 0; gpus && i < gpus->len; i++)
    {
      const ExecGpu *gpu = &g_array_index (gpus, ExecGpu, i);
      g_string_append_printf (facts, "|%s|%d|%d", gpu->name, (int)(gpu->memory_bytes >> 30),
                              (int)gpu->links);
    }
  g_autofree char *digest = g_compute_checksum_for_string (G_CHECKSUM_SHA256, facts->str, -1);
  return g_strdup_printf ("local/%.8s", digest);
}

static PlanCluster *
new_local (const ExecHost *host, const GArray *gpus)
{
  PlanCluster *self = g_new0 (PlanCluster, 1);
  self->name = fingerprint (host, gpus);
  self->source = g_strdup (host->source);
  self->nodes = 1;
  self->host_memory_bytes = host->memory_bytes;
  self->host_cores = host->cores;
  self->host_sockets = host->sockets;
  self->host_numa_nodes = host->numa_nodes;
  self->host_cache_bytes = host->cache_bytes;
  if (host->ports > 0)
    {
      static const PlanFact facts[]
          = { PLAN_FACT_NICS_PER_NODE, PLAN_FACT_NIC_RATE, PLAN_FACT_NIC_BANDWIDTH };
      self->nics_per_node = host->ports;
      self->nic_rate_bytes_per_s = host->port_bytes_per_s;
      for (guint i = 0; i < G_N_ELEMENTS (facts); i++)
        note (self, facts[i], "the kernel: /sys/class/infiniband");
    }
  return self;
}

/* Divides the bandwidth of network ports evenly among the devices of a node. */
static void
share_ports (PlanCluster *self)
{
  self->nic_bytes_per_s
      = self->nic_rate_bytes_per_s * (double)self->nics_per_node / (double)self->devices_per_node;
}

/* Number formats that the CPU's kernels widen to fp32 before products. */
static const struct
{
  PlanDtype dtype;
  PlanFact fact;
} widened[] = {
  { PLAN_DTYPE_FP16, PLAN_FACT_PEAK_FP16 },      { PLAN_DTYPE_BF16, PLAN_FACT_PEAK_BF16 },
  { PLAN_DTYPE_E4M3, PLAN_FACT_PEAK_E4M3 },      { PLAN_DTYPE_E5M2, PLAN_FACT_PEAK_E5M2 },
  { PLAN_DTYPE_FP8_1X128, PLAN_FACT_PEAK_E4M3 }, { PLAN_DTYPE_FP8_128X128, PLAN_FACT_PEAK_E4M3 },
  { PLAN_DTYPE_MXFP8, PLAN_FACT_PEAK_MXFP8 },    { PLAN_DTYPE_NVFP4, PLAN_FACT_PEAK_NVFP4 }
};

/* Takes the processor's rate for bf16 in builds with oneDNN, which uses the processor's
 * instructions for it. Without oneDNN bf16 is widened like other formats. */
static void
take_bf16_rate (PlanCluster *self, const ExecHost *host, double clock)
{
#ifdef HAVE_ONEDNN
  if (host->bf16_per_cycle > 0)
    {
      g_autofree char *peak = g_strdup_printf ("assumed: %d bf16 operations per cycle at %.0f MHz",
                                               (int)host->bf16_per_cycle, clock * 1e-6);
      self->peak_flops[PLAN_DTYPE_BF16]
          *= (double)host->bf16_per_cycle / (double)host->flops_per_cycle;
      note (self, PLAN_FACT_PEAK_BF16, peak);
    }
#else
  (void)self, (void)host, (void)clock;
#endif
}

static PlanCluster *
describe_processors (const ExecHost *host, gint64 ranks)
{
  PlanCluster *self = new_local (host, NULL);
  /* Of one processor, for a rank's first thread; exec_probe_set_threads adds its other threads. */
  const double share = MIN (1.0, (double)host->processors / (double)ranks);
  const double clock = host->clock_hz > 0 ? host->clock_hz : ASSUMED_HZ;
  g_autofree char *peak = g_strdup_printf (
      "assumed: %d fp32 operations per cycle at %s %.0f MHz", (int)host->flops_per_cycle,
      host->clock_hz > 0 ? "the kernel's" : "a guess of", clock * 1e-6);
  self->devices_per_node = ranks;
  self->kind = PLAN_DEVICE_CPU;
  self->device_name = word (host->processor ? host->processor : "");
  if (*self->device_name == '\0')
    {
      g_free (self->device_name);
      self->device_name = g_strdup ("unknown-processor");
    }
  self->peak_flops[PLAN_DTYPE_FP32] = clock * (double)host->flops_per_cycle * share;
  for (guint i = 0; i < G_N_ELEMENTS (widened); i++)
    self->peak_flops[widened[i].dtype] = self->peak_flops[PLAN_DTYPE_FP32];
  self->memory_bytes = host->memory_bytes / (guint64)ranks;
  self->memory_bytes_per_s = ASSUMED_BYTES_PER_S * share;
  self->link_bytes_per_s = ASSUMED_BYTES_PER_S * share;
  self->link_latency_ns = LATENCY_NS;
  share_ports (self);
  note (self, PLAN_FACT_PEAK_FP32, peak);
  for (guint i = 0; i < G_N_ELEMENTS (widened); i++)
    note (self, widened[i].fact, peak);
  take_bf16_rate (self, host, clock);
  note (self, PLAN_FACT_MEMORY_BANDWIDTH, "assumed: a share of a DDR4-3200 channel");
  note (self, PLAN_FACT_LINK_BANDWIDTH, "assumed: a share of a DDR4-3200 channel");
  note (self, PLAN_FACT_LINK_LATENCY, "assumed: two threads meeting at a barrier");
  note (self, PLAN_FACT_THREADS, "fsdplan: of the processors, equally many for each rank");
  self->threads = 1;
  exec_probe_set_threads (self, MAX (host->processors / ranks, 1));
  return self;
}

/* How many of a rank's threads have a core of their own. */
static gint64
with_core (const PlanCluster *self, gint64 threads)
{
  const gint64 cores = self->host_cores > 0 ? self->host_cores / self->devices_per_node : threads;
  return CLAMP (threads, 1, MAX (cores, 1));
}

/* Names the device by the number of threads, "amd-epyc-2-threads", because measurements with
 * another number do not apply. */
static void
name_threads (PlanCluster *self, gint64 threads)
{
  g_autofree char *before = g_strdup_printf ("-%" G_GINT64_FORMAT "-threads", self->threads);
  if (g_str_has_suffix (self->device_name, before))
    self->device_name[strlen (self->device_name) - strlen (before)] = '\0';
  if (threads <= 1)
    return;
  char *name = g_strdup_printf ("%s-%" G_GINT64_FORMAT "-threads", self->device_name, threads);
  g_free (self->device_name);
  self->device_name = name;
}

void
exec_probe_set_threads (PlanCluster *self, gint64 threads)
{
  const double more = (double)with_core (self, threads) / (double)with_core (self, self->threads);
  for (guint dtype = 0; dtype < PLAN_N_DTYPES; dtype++)
    self->peak_flops[dtype] *= more;
  self->memory_bytes_per_s *= more;
  self->link_bytes_per_s *= more;
  name_threads (self, threads);
  self->threads = threads;
}

/* Sets the facts that the driver knows of a GPU. */
static void
set_from_driver (PlanCluster *self, const ExecGpu *gpu)
{
  static const PlanFact facts[] = { PLAN_FACT_COMPUTE_CAPABILITY, PLAN_FACT_POWER,
                                    PLAN_FACT_PCIE_GENERATION,    PLAN_FACT_PCIE_LANES,
                                    PLAN_FACT_NVLINK_BANDWIDTH,   PLAN_FACT_NVLINK_DOMAIN };
  self->compute_capability = gpu->compute_capability;
  self->power_w = gpu->power_w;
  self->pcie_generation = gpu->pcie_generation;
  self->pcie_lanes = gpu->pcie_lanes;
  self->nvlink_bytes_per_s = (double)gpu->links * gpu->link_bytes_per_s;
  self->nvlink_domain = gpu->links > 0 ? self->devices_per_node : 0;
  for (guint i = 0; i < G_N_ELEMENTS (facts); i++)
    if (plan_cluster_knows (self, facts[i]))
      note (self, facts[i], NVML_SOURCE);
}

/* Sets the memory, unless the data sheet's figure is known and no larger than the driver's. Then
 * that figure stays, as it is nearer to what a program can have: the driver's includes memory that
 * it keeps for itself. */
static void
set_memory (PlanCluster *self, const ExecGpu *gpu)
{
  if (self->memory_bytes > 0 && self->memory_bytes <= gpu->memory_bytes)
    return;
  self->memory_bytes = gpu->memory_bytes;
  note (self, PLAN_FACT_MEMORY, NVML_SOURCE);
}

static void
set_links (PlanCluster *self, const ExecHost *host)
{
  const PlanFact link
      = self->nvlink_domain > 0 ? PLAN_FACT_NVLINK_BANDWIDTH : PLAN_FACT_HOST_BANDWIDTH;
  self->link_bytes_per_s = plan_cluster_value (self, link);
  self->link_latency_ns = LATENCY_NS;
  note (self, PLAN_FACT_LINK_BANDWIDTH, plan_cluster_source_of (self, link));
  note (self, PLAN_FACT_LINK_LATENCY, "assumed: order of magnitude of NCCL's tuning table");
  if (self->nics_per_node > 0)
    {
      self->nic_latency_ns = host->has_efa ? PLAN_EFA_LATENCY_NS : PLAN_PORT_LATENCY_NS;
      note (self, PLAN_FACT_NIC_LATENCY,
            host->has_efa ? "assumed: EFA, as measured on aws-p5"
                          : "assumed: order of magnitude of NCCL's tuning table");
    }
  if (host->nvswitches > 0)
    {
      self->nvswitch = PLAN_ANSWER_YES;
      self->nvls = self->compute_capability >= 90 ? PLAN_ANSWER_YES : PLAN_ANSWER_NO;
      note (self, PLAN_FACT_NVLS, "NVSwitch has it from compute capability 9.0 on");
    }
}

static PlanCluster *
describe_gpus (const ExecHost *host, const GArray *gpus, gint64 devices, GError **error)
{
  const ExecGpu *gpu = &g_array_index (gpus, ExecGpu, 0);
  const char *shipped = exec_gpu_shipped (gpu->name);
  const guint alike = n_alike (gpus);
  if (devices > alike)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "local: this machine has %u of %s, not %" G_GINT64_FORMAT
                   ": write local:%u, or local-cpu:%" G_GINT64_FORMAT " for its processors",
                   alike, gpu->name, devices, alike, devices);
      return NULL;
    }
  PlanCluster *self = new_local (host, gpus);
  self->devices_per_node = devices ? devices : alike;
  self->kind = PLAN_DEVICE_GPU;
  self->device_name = shipped ? g_strdup (shipped) : word (gpu->name);
  set_from_driver (self, gpu);
  plan_cluster_adopt_device (self);
  set_memory (self, gpu);
  set_links (self, host);
  share_ports (self);
  return self;
}

PlanCluster *
exec_probe_describe (const ExecHost *host, const GArray *gpus, gint64 devices, GError **error)
{
  if (gpus && gpus->len > 0)
    return describe_gpus (host, gpus, devices, error);
  return describe_processors (host, MAX (devices, 1));
}

PlanCluster *
exec_probe_cluster (gint64 devices, GError **error)
{
  g_auto (ExecHost) host = { 0 };
  g_autoptr (GArray) gpus = NULL;
  if (!exec_host_read (&host, error) || !exec_host_read_topology (&host, NULL, error)
      || !(gpus = exec_gpus_read (EXEC_NVML, error)))
    return NULL;
  return exec_probe_describe (&host, gpus, devices, error);
}

PlanCluster *
exec_probe_processors (gint64 ranks, GError **error)
{
  g_auto (ExecHost) host = { 0 };
  if (!exec_host_read (&host, error) || !exec_host_read_topology (&host, NULL, error))
    return NULL;
  return exec_probe_describe (&host, NULL, ranks, error);
}

void
exec_probe_set_nodes (PlanCluster *self, gint64 nodes)
{
  static const PlanFact facts[]
      = { PLAN_FACT_NICS_PER_NODE, PLAN_FACT_NIC_RATE, PLAN_FACT_NIC_BANDWIDTH };
  self->nodes = nodes;
  if (nodes < 2)
    return;
  if (self->nics_per_node == 0)
    {
      self->nics_per_node = 1;
      self->nic_rate_bytes_per_s = ASSUMED_PORT_BYTES_PER_S;
      share_ports (self);
      for (guint i = 0; i < G_N_ELEMENTS (facts); i++)
        note (self, facts[i], "assumed: a port of 10 Gbit/s in each node");
    }
  if (self->nic_latency_ns == 0)
    {
      self->nic_latency_ns = ASSUMED_PORT_LATENCY_NS;
      note (self, PLAN_FACT_NIC_LATENCY, "assumed: a message by way of TCP");
    }
}

/* Divides the rates and memory of one GPU among the ranks that share it. They communicate through
 * its memory. */
static void
deal_out (PlanCluster *self, gint64 ranks)
{
  const double share = 1.0 / (double)ranks;
  for (guint dtype = 0; dtype < PLAN_N_DTYPES; dtype++)
    self->peak_flops[dtype] *= share;
  self->devices_per_node = ranks;
  self->memory_bytes /= (guint64)ranks;
  self->memory_bytes_per_s *= share;
  self->link_bytes_per_s = self->memory_bytes_per_s;
  note (self, PLAN_FACT_LINK_BANDWIDTH, "assumed: a share of the GPU's memory");
}

PlanCluster *
exec_probe_describe_ranks (const ExecHost *host, GArray *gpus, gint64 ranks, gint64 per_host,
                           gboolean share, GError **error)
{
  while (!share && n_alike (gpus) < per_host)
    {
      ExecGpu other = g_array_index (gpus, ExecGpu, 0);
      other.name = g_strdup (other.name);
      g_array_append_val (gpus, other);
    }
  const gint64 here = share ? 1 : n_alike (gpus); /* GPUs of one machine that are used */
  PlanCluster *self = describe_gpus (host, gpus, MIN (ranks, here), error);
  if (self && share && ranks > 1)
    deal_out (self, ranks);
  else if (self && ranks > here && ranks % here == 0)
    self->nodes = ranks / here;
  else if (self && ranks > here)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%" G_GINT64_FORMAT
                   " ranks are no whole number of machines with %" G_GINT64_FORMAT " GPUs",
                   ranks, here);
      g_clear_pointer (&self, plan_cluster_free);
    }
  return self;
}

PlanCluster *
exec_probe_gpus (gint64 ranks, gint64 per_host, gboolean share, GError **error)
{
  g_auto (ExecHost) host = { 0 };
  g_autoptr (GArray) gpus = NULL;
  if (!exec_host_read (&host, error) || !exec_host_read_topology (&host, NULL, error)
      || !(gpus = exec_gpus_read (EXEC_NVML, error)))
    return NULL;
  if (gpus->len > 0)
    return exec_probe_describe_ranks (&host, gpus, ranks, per_host, share, error);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "no GPU: the NVIDIA driver names none");
  return NULL;
}
