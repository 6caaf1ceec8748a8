/* PlanCluster: nodes, devices and links, with the source of every figure.
 *
 * Read from a shipped name with a node count ("dgx-h100:1"), an .ini file or its
 * text; never changed afterwards. Rates are bytes or FLOPs per second, latencies
 * nanoseconds. */
#pragma once
#include "planner/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_DEVICE_GPU, /* streams run beside each other; the host issues ahead */
  PLAN_DEVICE_CPU, /* ops run in issue order, one after the other */
} PlanDeviceKind;

typedef struct
{
  char *name;   /* "dgx-h100" */
  char *source; /* where the figures come from */
  gint64 nodes;
  gint64 devices_per_node;
  char *device_name; /* "h100-80gb" */
  PlanDeviceKind kind;
  double peak_flops[PLAN_N_DTYPES]; /* dense; 0 where the device has none */
  guint64 memory_bytes;             /* what a process can use */
  double memory_bytes_per_s;
  double link_bytes_per_s; /* one direction, device to its node's other devices */
  gint64 link_latency_ns;
  double nic_bytes_per_s; /* one direction, per device */
  gint64 nic_latency_ns;
} PlanCluster;

/* "dgx-h100:4" (nodes), "h100-80gb:8" (devices of one node), "FILE.ini" or "FILE.ini:4" (nodes);
 * what --cluster takes. */
PlanCluster *plan_cluster_new (const char *spec, GError **error);

/* The text of an .ini file; `origin` names it in errors. */
PlanCluster *plan_cluster_parse (const char *text, const char *origin, GError **error);

void plan_cluster_free (PlanCluster *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanCluster, plan_cluster_free)

/* The .ini text that plan_cluster_parse reads back to an equal cluster. */
char *plan_cluster_print (const PlanCluster *self);

gint64 plan_cluster_devices (const PlanCluster *self);

/* Every figure that matrix products in `compute` and collectives over all its devices need is
 * there; INVALID naming the first that is missing. */
gboolean plan_cluster_check_figures (const PlanCluster *self, PlanDtype compute, GError **error);

/* NULL-terminated names of the shipped clusters, in a fixed order. */
const char *const *plan_cluster_presets (void);

G_END_DECLS
