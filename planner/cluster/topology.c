/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a cluster of a topology: distances between GPUs and ports become the facts from which the
 * cost of collectives follows. */
#include "config.h"

#include "planner/cluster/topology.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/cluster/cluster-private.h"
#include "planner/cluster/topology-private.h"

#include <math.h>
#include <string.h>

#define ASSUMED_TUNING "assumed: order of magnitude of NCCL's tuning table, src/graph/tuning.cc"
#define LINK_LATENCY_NS 2000
#define ASSUMED_EFA "assumed: EFA, as measured on aws-p5"

static void
clear_port (gpointer port)
{
  g_free (((PlanTopologyPort *)port)->name);
}

PlanTopology *
plan_topology_new (const char *source)
{
  PlanTopology *self = g_new0 (PlanTopology, 1);
  self->source = source;
  self->gpus = g_array_new (FALSE, TRUE, sizeof (PlanTopologyGpu));
  self->ports = g_array_new (FALSE, TRUE, sizeof (PlanTopologyPort));
  self->paths = g_byte_array_new ();
  g_array_set_clear_func (self->ports, clear_port);
  return self;
}

void
plan_topology_free (PlanTopology *self)
{
  if (!self)
    return;
  g_free (self->name);
  g_array_unref (self->gpus);
  g_array_unref (self->ports);
  g_byte_array_unref (self->paths);
  g_free (self);
}

gboolean
plan_topology_refuse (GError **error, guint line, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "line %u: %s", line, text);
  return FALSE;
}

static gboolean
is_xml (const char *text)
{
  return text[strspn (text, " \t\r\n")] == '<';
}

gboolean
plan_topology_is (const char *text)
{
  /* an .ini file begins with a section or a comment; the table begins with its GPUs, perhaps
   * underlined */
  const char *const start = text + strspn (text, " \t\r\n");
  const char *const plain = g_str_has_prefix (start, "\033[4m") ? start + 4 : start;
  return is_xml (text) || g_str_has_prefix (plain + strspn (plain, " \t"), "GPU0");
}

/* The cluster's name from a path: "/tmp/my node.xml" gives "my-node". */
static char *
name_of (const char *origin)
{
  g_autofree char *name = g_path_get_basename (origin);
  char *const dot = strrchr (name, '.');
  if (dot && dot != name)
    *dot = '\0';
  for (char *c = name; *c; c++)
    if (!g_ascii_isalnum (*c) && !strchr ("._+-", *c))
      *c = '-';
  return g_steal_pointer (&name);
}

PlanTopology *
plan_topology_parse (const char *text, const char *origin, GError **error)
{
  const gboolean xml = is_xml (text);
  g_autoptr (PlanTopology) self
      = plan_topology_new (xml ? "NCCL's topology file" : "nvidia-smi topo -m");
  self->name = name_of (origin);
  if (!plan_text_check (text, strlen (text), origin, error))
    return NULL;
  if (xml ? plan_topology_read_xml (self, text, error)
          : plan_topology_read_matrix (self, text, error))
    return g_steal_pointer (&self);
  g_prefix_error (error, "%s: ", origin);
  return NULL;
}

PlanPath
plan_topology_path (const PlanTopology *self, guint gpu, guint port)
{
  return (PlanPath)self->paths->data[gpu * self->ports->len + port];
}

static const PlanTopologyGpu *
gpu_at (const PlanTopology *self, guint i)
{
  return &g_array_index (self->gpus, PlanTopologyGpu, i);
}

static const PlanTopologyPort *
port_at (const PlanTopology *self, guint i)
{
  return &g_array_index (self->ports, PlanTopologyPort, i);
}

/* The path from a GPU to its nearest port; PLAN_N_PATHS where it has none. */
static PlanPath
nearest (const PlanTopology *self, guint gpu)
{
  PlanPath least = PLAN_N_PATHS;
  for (guint p = 0; p < self->ports->len; p++)
    if (port_at (self, p)->host == gpu_at (self, gpu)->host)
      least = MIN (least, plan_topology_path (self, gpu, p));
  return least;
}

gint *
plan_topology_assign (const PlanTopology *self)
{
  gint *chosen = g_new (gint, self->gpus->len);
  g_autofree guint *users = g_new0 (guint, self->ports->len);
  for (guint g = 0; g < self->gpus->len; g++)
    chosen[g] = -1;
  for (PlanPath way = PLAN_PATH_PIX; way < PLAN_N_PATHS; way++)
    for (guint g = 0; g < self->gpus->len; g++)
      if (nearest (self, g) == way)
        {
          for (guint p = 0; p < self->ports->len; p++)
            if (port_at (self, p)->host == gpu_at (self, g)->host
                && plan_topology_path (self, g, p) == way
                && (chosen[g] < 0 || users[p] < users[chosen[g]]))
              chosen[g] = (gint)p;
          users[chosen[g]]++;
        }
  return chosen;
}

static void
note (PlanCluster *cluster, PlanFact fact, const char *source)
{
  g_free (cluster->fact_source[fact]);
  cluster->fact_source[fact] = g_strdup (source);
}

/* The largest number of GPUs that have chosen the same port. */
static gint64
most_sharers (const PlanTopology *self)
{
  g_autofree gint *chosen = plan_topology_assign (self);
  gint64 most = 0;
  for (guint p = 0; p < self->ports->len; p++)
    {
      gint64 users = 0;
      for (guint g = 0; g < self->gpus->len; g++)
        users += chosen[g] == (gint)p;
      most = MAX (most, users);
    }
  return most;
}

/* Counts GPUs of the first host whose nearest port is behind a processor, or only those for which
 * it is behind another processor. */
static gint64
count_far (const PlanTopology *self, gboolean behind_another)
{
  gint64 n = 0;
  for (guint g = 0; g < self->gpus->len; g++)
    {
      const PlanPath way = nearest (self, g);
      const gboolean is_far
          = way == PLAN_PATH_SYS
            || (!behind_another && way >= PLAN_PATH_PHB && !gpu_at (self, g)->has_c2c);
      n += gpu_at (self, g)->host == 0 && is_far;
    }
  return n;
}

/* Sets the rate of far GPUs. Their bytes go through the host's memory, so at most at the GPU's own
 * rate there; GPUs that cross to another processor share the path between processors. */
static void
set_far (PlanCluster *cluster, const PlanTopology *self)
{
  const gint64 crossing = count_far (self, TRUE);
  cluster->far_devices = count_far (self, FALSE);
  cluster->far_bytes_per_s = cluster->far_devices > 0 ? cluster->host_link_bytes_per_s : 0;
  note (cluster, PLAN_FACT_FAR_BANDWIDTH,
        "assumed: through the host's memory, as fast as its PCIe");
  if (crossing == 0 || self->between_bytes_per_s <= 0)
    return;
  const double share = self->between_bytes_per_s / (double)crossing;
  if (cluster->far_bytes_per_s > 0 && cluster->far_bytes_per_s <= share)
    return;
  cluster->far_bytes_per_s = share;
  note (cluster, PLAN_FACT_FAR_BANDWIDTH,
        "assumed: a share of what NCCL takes processors to be joined by, src/graph/topo.h");
}

/* Whether a port is an elastic fabric adapter of Amazon's, by the kernel's names for them (by
 * location, formerly by number). */
static gboolean
is_efa (const char *name)
{
  return name && (g_str_has_prefix (name, "rdmap") || g_str_has_prefix (name, "efa_"));
}

static void
set_kind_of_ports (PlanCluster *cluster, const PlanTopology *self)
{
  gboolean has_efa = FALSE;
  for (guint p = 0; p < self->ports->len; p++)
    has_efa = has_efa || is_efa (port_at (self, p)->name);
  cluster->nic_latency_ns = has_efa ? PLAN_EFA_LATENCY_NS : PLAN_PORT_LATENCY_NS;
  note (cluster, PLAN_FACT_NIC_LATENCY, has_efa ? ASSUMED_EFA : ASSUMED_TUNING);
  if (!has_efa)
    return;
  cluster->ibgda = PLAN_ANSWER_NO;
  note (cluster, PLAN_FACT_IBGDA, "EFA: DeepEP issue #369");
}

static gboolean
set_ports (PlanCluster *cluster, const PlanTopology *self, GError **error)
{
  double least = 0;
  if (self->ports->len % self->hosts != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%u network ports are not the same number on each of %u hosts", self->ports->len,
                   self->hosts);
      return FALSE;
    }
  if (self->ports->len == 0)
    return TRUE;
  for (guint p = 0; p < self->ports->len; p++)
    if (p == 0 || port_at (self, p)->bytes_per_s < least)
      least = port_at (self, p)->bytes_per_s;
  cluster->nics_per_node = cluster->rails = self->ports->len / self->hosts;
  cluster->nic_rate_bytes_per_s = least;
  cluster->nic_sharers = most_sharers (self);
  set_kind_of_ports (cluster, self);
  note (cluster, PLAN_FACT_RAILS, "assumed: equal ports of all nodes are joined");
  return TRUE;
}

/* The rate of one NVLink in one direction, by compute capability: 20 GB/s for NVLink 1.0, 25 up to
 * 4.0, 50 for 5.0 (NVIDIA's data sheets); capability 8.6 has 56.25 GB/s over four links. */
static double
link_rate (gint64 capability)
{
  return capability >= 100 ? 50e9 : capability == 86 ? 14.0625e9 : capability >= 70 ? 25e9 : 20e9;
}

/* The number of GPUs of the smallest island. */
static gint64
smallest_island (const PlanTopology *self)
{
  g_autofree gint64 *size = g_new0 (gint64, self->gpus->len);
  gint64 least = 0;
  for (guint g = 0; g < self->gpus->len; g++)
    size[gpu_at (self, g)->island]++;
  for (guint i = 0; i < self->gpus->len; i++)
    if (size[i] > 0 && (least == 0 || size[i] < least))
      least = size[i];
  return least;
}

static void
set_nvlink (PlanCluster *cluster, const PlanTopology *self, gint64 capability)
{
  gint64 least = gpu_at (self, 0)->links, most = least;
  gboolean all_switched = TRUE;
  for (guint g = 0; g < self->gpus->len; g++)
    {
      least = MIN (least, gpu_at (self, g)->links);
      most = MAX (most, gpu_at (self, g)->links);
      all_switched = all_switched && gpu_at (self, g)->has_switch;
    }
  g_autofree char *uneven
      = g_strdup_printf ("%s: %" G_GINT64_FORMAT " links where others have %" G_GINT64_FORMAT,
                         self->source, least, most);
  const gint64 domain = smallest_island (self);
  if (least == 0 || capability == 0 || domain < 2)
    return;
  cluster->nvlink_bytes_per_s = (double)least * link_rate (capability);
  cluster->nvlink_domain = domain;
  if (least != most)
    note (cluster, PLAN_FACT_NVLINK_BANDWIDTH, uneven);
  if (!all_switched)
    return;
  cluster->nvswitch = PLAN_ANSWER_YES;
  cluster->nvls = capability >= 90 ? PLAN_ANSWER_YES : PLAN_ANSWER_NO;
  note (cluster, PLAN_FACT_NVLS, "NVSwitch has it from compute capability 9.0 on");
}

/* PCIe's rate in one direction, rounded to 10 MB/s: 128b/130b coding from generation 3 on, 8b/10b
 * before. */
static double
pcie_rate (gint64 generation, gint64 lanes)
{
  const double per_lane = generation >= 3 ? (double)(4 << (generation - 2)) * 128 / 130
                                          : 2.5 * (double)generation * 8 / 10;
  return floor (per_lane * 100 / 8 * (double)lanes + 0.5) * 1e7;
}

static void
set_pcie (PlanCluster *cluster, const PlanTopology *self)
{
  cluster->pcie_generation = gpu_at (self, 0)->pcie_generation;
  cluster->pcie_lanes = gpu_at (self, 0)->pcie_lanes;
  for (guint g = 1; g < self->gpus->len; g++)
    {
      cluster->pcie_generation = MIN (cluster->pcie_generation, gpu_at (self, g)->pcie_generation);
      cluster->pcie_lanes = MIN (cluster->pcie_lanes, gpu_at (self, g)->pcie_lanes);
    }
  if (cluster->pcie_generation > 0 && cluster->pcie_lanes > 0)
    {
      cluster->host_link_bytes_per_s = pcie_rate (cluster->pcie_generation, cluster->pcie_lanes);
      note (cluster, PLAN_FACT_HOST_BANDWIDTH, "PCIe's rate less its coding");
    }
}

/* Sets the link between GPUs. Without NVLink between all of them, rings go over PCIe, and between
 * processors once. */
static void
set_link (PlanCluster *cluster, const PlanTopology *self)
{
  cluster->link_latency_ns = LINK_LATENCY_NS;
  note (cluster, PLAN_FACT_LINK_LATENCY, ASSUMED_TUNING);
  if (cluster->nvlink_domain >= cluster->devices_per_node)
    return; /* the cluster's own rule: NVLink is the link */
  cluster->link_bytes_per_s = cluster->host_link_bytes_per_s;
  note (cluster, PLAN_FACT_LINK_BANDWIDTH,
        plan_cluster_source_of (cluster, PLAN_FACT_HOST_BANDWIDTH));
  gboolean crosses = FALSE;
  for (guint g = 1; g < self->gpus->len; g++)
    crosses = crosses
              || (gpu_at (self, g)->host == gpu_at (self, 0)->host
                  && gpu_at (self, g)->numa != gpu_at (self, 0)->numa);
  if (!crosses || self->between_bytes_per_s <= 0
      || cluster->link_bytes_per_s <= self->between_bytes_per_s)
    return;
  cluster->link_bytes_per_s = self->between_bytes_per_s;
  note (cluster, PLAN_FACT_LINK_BANDWIDTH,
        "assumed: what NCCL takes processors to be joined by, src/graph/topo.h");
}

/* The shipped device that all GPUs are; what was asked for goes before what the file says. */
static gboolean
find_device (const PlanTopology *self, const char *asked, const char **out_device, GError **error)
{
  const PlanTopologyGpu *first = gpu_at (self, 0);
  for (guint g = 1; g < self->gpus->len; g++)
    if (gpu_at (self, g)->pci_device != first->pci_device)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "GPU 0 is of PCI device %#x and GPU %u of %#x: a cluster is of one kind",
                     first->pci_device, g, gpu_at (self, g)->pci_device);
        return FALSE;
      }
  *out_device = first->device;
  if (asked && !plan_cluster_find_device (asked, out_device, error))
    return FALSE;
  if (*out_device)
    return TRUE;
  g_autofree char *shown = asked ? plan_text_quote (asked) : NULL;
  if (asked)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s is not a shipped device: see show --gpus", shown);
  else if (first->pci_device)
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_INVALID,
        "PCI device %#x is not a shipped device: write DEVICE@FILE with one that is like it",
        first->pci_device);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s does not name the GPUs: write DEVICE@FILE, as in h100-80gb@FILE",
                 self->source);
  return FALSE;
}

PlanCluster *
plan_topology_describe (const PlanTopology *self, const char *device, GError **error)
{
  const char *shipped;
  if (!find_device (self, device, &shipped, error))
    return NULL;
  if (self->gpus->len % self->hosts != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%u GPUs are not the same number on each of %u hosts", self->gpus->len,
                   self->hosts);
      return NULL;
    }
  g_autoptr (PlanCluster) cluster = plan_cluster_new_empty ();
  g_autoptr (PlanCluster) own = plan_cluster_new_device (shipped, error);
  if (!own)
    return NULL;
  const gint64 capability = gpu_at (self, 0)->compute_capability;
  g_free (cluster->source);
  cluster->source = g_strdup (self->source);
  cluster->name = g_strdup (self->name);
  cluster->device_name = g_strdup (shipped);
  cluster->nodes = self->hosts;
  cluster->devices_per_node = self->gpus->len / self->hosts;
  cluster->compute_capability = capability;
  cluster->host_numa_nodes = self->numa_nodes / self->hosts;
  set_nvlink (cluster, self, capability ? capability : own->compute_capability);
  set_pcie (cluster, self);
  plan_cluster_adopt_device (cluster);
  set_link (cluster, self);
  set_far (cluster, self);
  if (!set_ports (cluster, self, error) || !plan_cluster_complete (cluster, error))
    return NULL;
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (!plan_cluster_knows (cluster, f)
        || g_strcmp0 (cluster->fact_source[f], cluster->source) == 0)
      g_clear_pointer (&cluster->fact_source[f], g_free);
  return g_steal_pointer (&cluster);
}
