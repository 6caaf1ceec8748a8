/* PlanCluster: nodes, devices and links, with the source of every figure.
 *
 * It is read from a shipped name with a node count ("dgx-h100:1"), an .ini file or its text, and
 * never changed afterwards. Rates are in bytes or FLOPs per second, latencies in nanoseconds; 0
 * means not known. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/cluster/cluster-facts.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_DEVICE_GPU, /* streams run beside each other; the host issues ahead */
  PLAN_DEVICE_CPU, /* ops run in issue order, one after the other */
} PlanDeviceKind;

/* Members from peak_flops on are the facts of cluster-facts.h, where each is explained. */
typedef struct
{
  char *name;   /* "dgx-h100" */
  char *source; /* the source of every fact without a source of its own */
  char *site;   /* whose machines these are, where hosts of one site are alike; NULL: not known */
  gint64 nodes;
  gint64 devices_per_node;
  char *device_name; /* "h100-80gb" */
  PlanDeviceKind kind;
  double peak_flops[PLAN_N_DTYPES]; /* dense; 0 where the device has none */
  double peak_tf32_flops, peak_int8_ops;
  guint64 memory_bytes; /* what a process can use */
  guint64 memory_nominal_bytes, l2_bytes;
  double memory_bytes_per_s;
  gint64 sm_count, power_w, threads;
  double boost_clock_hz;
  gint64 compute_capability; /* 90 is 9.0 */
  PlanAnswer rocm;
  double nvlink_bytes_per_s;
  gint64 pcie_generation, pcie_lanes;
  double host_link_bytes_per_s;
  double link_bytes_per_s; /* one direction, device to its node's other devices */
  gint64 link_latency_ns;
  gint64 mesh_links;    /* 0: a device reaches any other at link_bytes_per_s */
  gint64 nvlink_domain; /* may reach over several nodes */
  PlanAnswer nvswitch, nvls, sharp, ibgda;
  gint64 nics_per_node, rails;
  double nic_rate_bytes_per_s;
  double nic_bytes_per_s; /* one direction, per device */
  gint64 nic_latency_ns;
  gint64 nic_sharers, far_devices;
  double far_bytes_per_s;
  guint64 host_memory_bytes, host_cache_bytes;
  double host_memory_bytes_per_s;
  gint64 host_cores, host_sockets, host_numa_nodes;
  char *fact_source[PLAN_N_FACTS]; /* NULL: `source` */
} PlanCluster;

/* Makes the cluster of a --cluster text: "dgx-h100:4" (nodes), "h100-80gb:8" (devices of one node),
 * "FILE" or "FILE:4" (nodes). Devices also have other names, such as "h100" or "RTX 4090". A file
 * is an .ini file, or the topology of a node as written by NCCL or nvidia-smi; where that does not
 * name the GPUs, the text is "h100@FILE". */
PlanCluster *plan_cluster_new (const char *spec, GError **error);

/* One shipped device alone, with its own facts only. */
PlanCluster *plan_cluster_new_device (const char *device, GError **error);

/* The text of an .ini file; `origin` names it in errors. */
PlanCluster *plan_cluster_parse (const char *text, const char *origin, GError **error);

/* The same nodes and network with another number of devices: whole nodes, or a part of one. If
 * `self` has a part of a node, that part is taken for the node. */
PlanCluster *plan_cluster_resize (const PlanCluster *self, gint64 devices, GError **error);

void plan_cluster_free (PlanCluster *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanCluster, plan_cluster_free)

/* The .ini text, which plan_cluster_parse reads back to an equal cluster. */
char *plan_cluster_print (const PlanCluster *self);

gint64 plan_cluster_devices (const PlanCluster *self);

/* The number of devices that reach one another without the network: those of a node, or of a larger
 * NVLink domain as far as the cluster fills it. */
gint64 plan_cluster_linked_devices (const PlanCluster *self);

/* Checks that every figure is known that GEMMs in `compute` and collectives over all devices need.
 * INVALID names the first missing one. */
gboolean plan_cluster_check_figures (const PlanCluster *self, PlanDtype compute, GError **error);

gboolean plan_cluster_knows (const PlanCluster *self, PlanFact fact);

/* The value in base units; 0 when not known. A version is major.minor, an answer 1 for yes. */
double plan_cluster_value (const PlanCluster *self, PlanFact fact);

/* "3.35 TB/s", as in the text; NULL when not known. The caller frees. */
char *plan_cluster_print_fact (const PlanCluster *self, PlanFact fact);

/* The source of a fact; "assumed: ..." when nobody measured or published it. */
const char *plan_cluster_source_of (const PlanCluster *self, PlanFact fact);
gboolean plan_cluster_assumes (const PlanCluster *self, PlanFact fact);

/* Sets a fact from its text form; a NULL `source` stands for the cluster's. */
gboolean plan_cluster_set_fact (PlanCluster *self, PlanFact fact, const char *text,
                                const char *source, GError **error);

/* Changes facts from "FACT=VALUE" texts, each fact once, to describe other hardware. A fact that
 * depends on a changed one (such as a device's share of the ports on the rate of a port) changes in
 * proportion, unless it was set as well. */
gboolean plan_cluster_override (PlanCluster *self, const char *const *settings, GError **error);

/* The texts of all such changes, "FACT=VALUE", NULL-terminated; the caller frees. They make the
 * same changes to another cluster. */
char **plan_cluster_overrides (const PlanCluster *self);

/* Whether any fact was changed so; with `of_device`, whether one of the device itself was. */
gboolean plan_cluster_is_altered (const PlanCluster *self, gboolean of_device);

/* Fills in unknown facts from the shipped device of the same name, if there is one. */
void plan_cluster_adopt_device (PlanCluster *self);

/* NULL-terminated names of the shipped clusters and devices, in a fixed order. */
const char *const *plan_cluster_presets (void);
const char *const *plan_cluster_devices_shipped (void);

/* Whether it is a shipped cluster or device, or another name for one or several devices. */
gboolean plan_cluster_is_shipped (const char *name);

G_END_DECLS
