/* What the parts of the probe exchange: facts about a machine as they were found. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* Processors, memory and network cards of a machine; 0: not known. */
typedef struct
{
  char *processor;   /* "AMD EPYC 7B13" */
  char *source;      /* who said so */
  gint64 processors; /* processors this process may use, one per core */
  gint64 cores, sockets, numa_nodes;
  guint64 memory_bytes, cache_bytes;
  double clock_hz;
  gint64 flops_per_cycle; /* fp32, one processor */
  gint64 bf16_per_cycle;  /* where it has bf16 instructions; else 0 */
  gint64 nvswitches;
  gint64 ports;            /* of InfiniBand and RoCE */
  double port_bytes_per_s; /* of the slowest port */
  gboolean has_efa;        /* at least one port is Amazon's */
} ExecHost;

void exec_host_clear (ExecHost *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecHost, exec_host_clear)

/* Fills the facts that the kernel knows; the caller clears. */
gboolean exec_host_read (ExecHost *self, GError **error);

/* Fills processor, clock and operations per cycle from the text of /proc/cpuinfo, which may be
 * NULL. */
void exec_host_read_cpuinfo (ExecHost *self, const char *cpuinfo);

/* Parses a port's rate as the kernel prints it, "400 Gb/sec (4X NDR)", into bytes per second; 0 for
 * anything else. */
double exec_host_parse_rate (const char *text);

/* Counts the ports below `folder` (/sys/class/infiniband), and finds their rate and whether any is
 * Amazon's. */
void exec_host_read_ports (ExecHost *self, const char *folder);

/* Replaces facts by those of hwloc, about this machine or about one exported to the file `xml`.
 * Does nothing in a build without hwloc. */
gboolean exec_host_read_topology (ExecHost *self, const char *xml, GError **error);
gboolean exec_host_has_topology (void);

/* A GPU as its driver describes it; 0: not known. */
typedef struct
{
  char *name; /* "NVIDIA H100 80GB HBM3" */
  guint64 memory_bytes;
  gint64 compute_capability; /* 90 is 9.0 */
  gint64 links;              /* NVLinks that are up */
  double link_bytes_per_s;   /* of one link, in one direction */
  gint64 pcie_generation, pcie_lanes;
  gint64 power_w;
} ExecGpu;

/* The GPUs of this machine (ExecGpu) by NVML, loaded from `library`. Empty where there is no
 * driver; BACKEND when there is one and it fails. */
GArray *exec_gpus_read (const char *library, GError **error);
#define EXEC_NVML "libnvidia-ml.so.1"

/* The device of the catalogue that a driver calls `name`; NULL when there is none. */
const char *exec_gpu_shipped (const char *name);

/* Describes a machine as a cluster: `devices` of its GPUs (0: all); or without GPUs, that many
 * ranks on its processors (0: one). */
PlanCluster *exec_probe_describe (const ExecHost *host, const GArray *gpus, gint64 devices,
                                  GError **error);

/* Describes `ranks` ranks on GPUs, see exec_probe_gpus. Adds to `gpus` those that only other ranks
 * of this machine see. */
PlanCluster *exec_probe_describe_ranks (const ExecHost *host, GArray *gpus, gint64 ranks,
                                        gint64 per_host, gboolean share, GError **error);

G_END_DECLS
