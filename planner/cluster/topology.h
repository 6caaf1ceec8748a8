/* PlanTopology: what one node is made of, as NCCL or the driver drew it: GPUs, network ports, and
 * how far each GPU is from each port.
 *
 * Read from the XML that NCCL_TOPO_DUMP_FILE names or from the table of `nvidia-smi topo -m`; never
 * changed afterwards. plan_topology_describe makes a cluster of it. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* The path between a GPU and a port, by nvidia-smi's words; the shortest first. */
typedef enum
{
  PLAN_PATH_PIX,  /* one PCIe bridge between them */
  PLAN_PATH_PXB,  /* several PCIe bridges, below one root port */
  PLAN_PATH_PHB,  /* through the host bridge of a processor */
  PLAN_PATH_NODE, /* through several host bridges of one NUMA node */
  PLAN_PATH_SYS,  /* from one NUMA node to another */
  PLAN_N_PATHS
} PlanPath;

typedef struct
{
  const char *device;        /* the shipped device; NULL: not said */
  guint pci_device;          /* 0: not said */
  gint64 compute_capability; /* 90 is 9.0; 0: not said */
  gint64 links;              /* NVLinks, all of them */
  gboolean has_switch;       /* they lead to switches */
  gboolean has_c2c;          /* NVLink joins it with its processor: ports behind that are not far */
  gint64 pcie_generation, pcie_lanes;
  guint host, numa, island; /* an island is joined by NVLink; numbered from 0 */
} PlanTopologyGpu;

typedef struct
{
  char *name; /* "mlx5_0" */
  double bytes_per_s;
  guint host;
} PlanTopologyPort;

typedef struct
{
  const char *source;
  char *name;        /* a word made of the file's */
  GArray *gpus;      /* PlanTopologyGpu */
  GArray *ports;     /* PlanTopologyPort */
  GByteArray *paths; /* PlanPath of each GPU to each port, port by port */
  guint hosts, numa_nodes;
  double between_bytes_per_s; /* between NUMA nodes, one way; 0: not known */
} PlanTopology;

/* TRUE when a text is one of the two formats, and not an .ini file. */
gboolean plan_topology_is (const char *text);

PlanTopology *plan_topology_parse (const char *text, const char *origin, GError **error);
void plan_topology_free (PlanTopology *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanTopology, plan_topology_free)

/* The latency that is assumed for a hop over a network port. */
#define PLAN_PORT_LATENCY_NS 5000 /* the order of magnitude of NCCL's tuning table */
#define PLAN_EFA_LATENCY_NS 40000 /* data/clusters.ini, aws-p5: curves of 2 to 32 nodes */

PlanPath plan_topology_path (const PlanTopology *self, guint gpu, guint port);

/* Assigns a port to each GPU, -1 where it reaches none: of its nearest ports one that the fewest
 * GPUs use. GPUs with the shortest paths choose first. The caller frees. */
gint *plan_topology_assign (const PlanTopology *self);

/* Makes a cluster of the topology, with devices of kind `device` (NULL: as the file says). */
PlanCluster *plan_topology_describe (const PlanTopology *self, const char *device, GError **error);

G_END_DECLS
