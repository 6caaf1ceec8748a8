/* What the parts of the probe hand over: what a machine said, before anything is made of it. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Processors, memory and cards of a machine; 0 is not known. */
typedef struct
{
  char *processor;   /* "AMD EPYC 7B13" */
  char *source;      /* who said so */
  gint64 processors; /* that this process may use, one of each core */
  gint64 cores, sockets, numa_nodes;
  guint64 memory_bytes, cache_bytes;
  double clock_hz;
  gint64 flops_per_cycle; /* fp32, one processor */
  gint64 bf16_per_cycle;  /* where it multiplies bf16 itself; else 0 */
  gint64 nvswitches;
  gint64 ports;            /* InfiniBand and RoCE */
  double port_bytes_per_s; /* the slowest of them */
  gboolean has_efa;        /* one of them at least is Amazon's */
} ExecHost;

void exec_host_clear (ExecHost *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecHost, exec_host_clear)

/* From the kernel alone; the caller clears. */
gboolean exec_host_read (ExecHost *self, GError **error);

/* Fills processor, clock and width of vectors from the text of /proc/cpuinfo; may be NULL. */
void exec_host_read_cpuinfo (ExecHost *self, const char *cpuinfo);

/* "400 Gb/sec (4X NDR)", as the kernel states the rate of a port, in bytes per second; 0 for
 * anything else. */
double exec_host_parse_rate (const char *text);

/* Counts the ports below `folder`, /sys/class/infiniband, and tells whose they are. */
void exec_host_read_ports (ExecHost *self, const char *folder);

/* Puts what hwloc knows over it: of this machine, or of an exported one (`xml`, a file). Without
 * hwloc in the build nothing changes. */
gboolean exec_host_read_topology (ExecHost *self, const char *xml, GError **error);
gboolean exec_host_has_topology (void);

/* A GPU as its driver describes it; 0 is not known. */
typedef struct
{
  char *name; /* "NVIDIA H100 80GB HBM3" */
  guint64 memory_bytes;
  gint64 compute_capability; /* 90 is 9.0 */
  gint64 links;              /* NVLinks that are up */
  double link_bytes_per_s;   /* each, one way */
  gint64 pcie_generation, pcie_lanes;
  gint64 power_w;
} ExecGpu;

/* The GPUs of this machine by NVML, loaded from `library`; elements are ExecGpu. Empty where there
 * is no driver; BACKEND when there is one and it fails. */
GArray *exec_gpus_read (const char *library, GError **error);
#define EXEC_NVML "libnvidia-ml.so.1"

/* The shipped device that a driver calls `name`; NULL when there is none. */
const char *exec_gpu_shipped (const char *name);

/* What a machine is as a cluster: `devices` of its GPUs (0: all) or, without GPUs, that many ranks
 * on its processors (0: one). */
PlanCluster *exec_probe_describe (const ExecHost *host, const GArray *gpus, gint64 devices,
                                  GError **error);

/* See exec_probe_gpus; adds to `gpus` what other ranks of this machine have. */
PlanCluster *exec_probe_describe_ranks (const ExecHost *host, GArray *gpus, gint64 ranks,
                                        gint64 per_host, gboolean share, GError **error);

G_END_DECLS
